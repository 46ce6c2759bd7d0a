"""The caller of a route. A route states its roles, and is given who asks:

    @router.delete("/v1/things/{name}")
    async def delete_thing(name: str, caller: Administrator) -> Response: ...

``app.state.access`` must be set (see ``guard``): an application without it answers no such route.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request, Security
from fastapi.security import HTTPBearer

from collector.access import IMPORT_HEADER, PROJECT_HEADER, PROJECT_QUERY, Access, BadProject, Caller, Forbidden
from collector.keyring import Unauthenticated
from collector.keys import Role
from collector.problems import problem_of

_BEARER = HTTPBearer(
    auto_error=False, scheme_name="key", description="A key of `pickwise keys create`; needed once the folder has one."
)
_HEADER = "1 to 64 of A-Z a-z 0-9 . _ -; absent: the project of the key, else `default`"
#: Told, not enforced: a bad name is refused like every other input, as a Status.
_NAME: dict[str, Any] = {"pattern": "^[A-Za-z0-9._-]{1,64}$"}


def guard(app: FastAPI, access: Access) -> None:
    """Let the routes of an application ask this access."""
    app.state.access = access


def require(*roles: Role) -> Callable[..., Coroutine[Any, Any, Caller]]:
    """A dependency that gives a route its caller: one with any of the roles, or anyone while no keys are needed."""

    async def caller(
        request: Request,
        _key: Annotated[Any, Security(_BEARER)] = None,
        _header: Annotated[
            str | None, Header(alias=PROJECT_HEADER, description=_HEADER, json_schema_extra=_NAME)
        ] = None,
        _query: Annotated[
            str | None, Query(alias=PROJECT_QUERY, description=f"as {PROJECT_HEADER}", json_schema_extra=_NAME)
        ] = None,
    ) -> Caller:
        access: Access = request.app.state.access
        names = [(PROJECT_HEADER, value) for value in request.headers.getlist(PROJECT_HEADER)]
        names += [(PROJECT_QUERY, value) for value in request.query_params.getlist(PROJECT_QUERY)]
        try:
            found = access.authorize(request.headers.getlist("authorization"), names, roles)
            return found._replace(imports=IMPORT_HEADER in request.headers)
        except (Unauthenticated, Forbidden, BadProject) as error:
            raise problem_of(error) or error from error

    return caller


Sender = Annotated[Caller, Depends(require("ingest"))]
Reader = Annotated[Caller, Depends(require("read"))]
Administrator = Annotated[Caller, Depends(require("admin"))]
SenderOrReader = Annotated[Caller, Depends(require("ingest", "read"))]
