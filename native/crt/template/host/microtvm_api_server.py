"""The server of the template "host", and of projects that are made from it."""

from pathlib import Path

from tilewright.micro.project_api import server
from tilewright.micro.project_api.project import HostProject

if __name__ == "__main__":
    server.main(HostProject(Path(__file__).resolve().parent))
