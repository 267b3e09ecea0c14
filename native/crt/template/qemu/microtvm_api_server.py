"""The server of the template "qemu", and of projects that are made from it."""

from pathlib import Path

from tilewright.micro.project_api import server
from tilewright.micro.project_api.project import QemuProject

if __name__ == "__main__":
    server.main(QemuProject(Path(__file__).resolve().parent))
