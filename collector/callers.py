"""The caller of a route. A route states its roles, and is given who asks:

    @router.delete("/v1/things/{name}")
    async def delete_thing(name: str, caller: Administrator) -> Response: ...

``app.state.access`` must be set (see ``guard``): an application without it answers no such route.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request, Response, Security
from fastapi.security import HTTPBearer
from starlette.types import Receive, Scope, Send

from collector.access import IMPORT_HEADER, PROJECT_HEADER, PROJECT_QUERY, Access, BadProject, Caller, Forbidden
from collector.keyring import Unauthenticated
from collector.keys import Role
from collector.problems import StatusRoute, answered, problem_of

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
        if request.scope["query_string"]:
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


class DirectRoute(StatusRoute):
    """A route for many requests: its endpoint is given the request and the caller, and nothing else.

    FastAPI describes it, but does not solve its dependencies: that takes longer than judging a small request.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        (self._caller,) = [dependency.call for dependency in self.dependant.dependencies]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        response = await answered(self._direct, Request(scope, receive))
        await response(scope, receive, send)

    async def _direct(self, request: Request) -> Response:
        assert self._caller is not None
        response: Response = await self.endpoint(request, await self._caller(request))
        return response
