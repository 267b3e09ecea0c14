"""TVM 0.8's Project API: programs that make, build, flash and talk to projects for boards, each in a process.

``server.py`` has what such a program implements and the loop that serves it; ``client.py`` starts one and asks it;
``project.py`` implements it for this machine and for boards that QEMU emulates. The requests are JSON-RPC 2.0,
the errors those of ``errors.py``.
"""

from tilewright.micro.project_api import client, server

__all__ = ["client", "server"]
