"""``python -m tilewright.rpc``: the process of a server, tracker or proxy; ``service.Service`` starts it."""

import sys

from .service import main

sys.exit(main())
