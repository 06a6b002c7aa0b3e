"""Work for a client who may hang up at any moment."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Does some work, and breaks it off as soon as the client has gone.

    The request's body must have been read: what comes after it can only be the end.

    Returns:
        False if the client has gone before the work was done.

    Raises:
        Exception: whatever the work raises.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_until_gone(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        for task in (working, watching):
            task.cancel()
        # The work cleans up behind itself: it ends the requests. That is waited for.
        await asyncio.gather(working, watching, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
