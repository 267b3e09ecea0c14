"""``import tvm`` gives Tilewright where it was asked for, with one identity for each module."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import tvm
from tvm import relay
from tvm.relay import transform
import tvm.contrib.graph_executor as runtime
import tilewright

assert tvm is tilewright and relay is tilewright.relay and transform is tilewright.relay.transform
assert relay.__name__ == "tilewright.relay" and relay.__spec__.name == "tilewright.relay"
assert isinstance(runtime.GraphModule, type)
print(sys.argv[1:], __name__)
"""


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=120)


def test_a_script_that_imports_tvm_runs_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run("-m", "tilewright.tvm", "script.py", "a", "--b", cwd=tmp_path)
    assert done.stdout == "['a', '--b'] __main__\n", done.stderr


def test_a_script_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "beside.py").write_text("import tvm\nname = tvm.__name__\n")
    (tmp_path / "inner" / "script.py").write_text("import beside\nprint(beside.name)\n")
    assert run("-m", "tilewright.tvm", "inner/script.py", cwd=tmp_path).stdout == "tilewright\n"


def test_importing_tilewright_tvm_is_enough(tmp_path: Path) -> None:
    done = run("-c", "import tilewright.tvm, tvm.relay; print(tvm.relay.__name__)", cwd=tmp_path)
    assert done.stdout == "tilewright.relay\n", done.stderr


def test_a_module_that_does_not_exist_is_named_as_the_program_names_it(tmp_path: Path) -> None:
    done = run("-c", "import tilewright.tvm, tvm.nothing_here", cwd=tmp_path)
    assert "No module named 'tvm.nothing_here'" in done.stderr


def test_another_tvm_that_is_loaded_already_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tvm.py").write_text("")
    done = run("-c", "import tvm; import tilewright.tvm", cwd=tmp_path)
    assert "import tilewright.tvm before anything imports tvm" in done.stderr


def test_without_a_script_usage_is_shown(tmp_path: Path) -> None:
    done = run("-m", "tilewright.tvm", cwd=tmp_path)
    assert done.returncode == 1 and "usage" in done.stderr


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run("-m", "tilewright.tvm", "nowhere.py", cwd=tmp_path)
    assert done.returncode == 1 and "cannot open nowhere.py" in done.stderr and "Traceback" not in done.stderr


def test_a_module_and_code_run_as_python_runs_them(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "beside.py").write_text("import tvm.relay as r\n")
    (tmp_path / "mine" / "program.py").write_text(
        "import sys\nfrom . import beside\nprint(beside.r.__name__, __name__, __package__, sys.argv[1:])\n"
    )
    done = run("-m", "tilewright.tvm", "-m", "mine.program", "a", "-b", cwd=tmp_path)
    assert done.stdout == "tilewright.relay __main__ mine ['a', '-b']\n", done.stderr
    done = run(
        "-m", "tilewright.tvm", "-c", "import tvm, sys; print(tvm.__name__, sys.argv, __name__)", "-x", cwd=tmp_path
    )
    assert done.stdout == "tilewright ['-c', '-x'] __main__\n", done.stderr


WORKERS = """
import multiprocessing, pickle, subprocess, sys
import tvm
from tvm import relay, te

class Counter(relay.ExprVisitor):
    pass

def work(n):
    import tvm.relay
    return tvm.__name__, int(te.placeholder((n,)).shape[0]), Counter.__module__

if __name__ == "__main__":
    x = relay.var("x", shape=(2,))
    again = pickle.loads(pickle.dumps(relay.Function([x], relay.nn.relu(x))))
    assert isinstance(again, tvm.relay.Function) and isinstance(pickle.loads(pickle.dumps(Counter())), Counter)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [3]))
    print(subprocess.run([sys.executable, "-c", "import tvm.ir; print(tvm.ir.__name__)"], capture_output=True).stdout)
"""


def test_processes_that_a_script_starts_find_tvm(tmp_path: Path) -> None:
    (tmp_path / "workers.py").write_text(WORKERS)
    done = run("-m", "tilewright.tvm", "workers.py", cwd=tmp_path)
    assert done.stdout == "[('tilewright', 3, '__mp_main__')]\nb'tilewright.ir\\n'\n", done.stderr
