"""Types of the part of clickhouse-connect that aaiclick uses."""

from collections.abc import Mapping

from .driver.asyncclient import AsyncClient

async def get_async_client(
    *,
    host: str | None = None,
    username: str | None = None,
    password: str = "",
    database: str | None = None,
    port: int | None = None,
    secure: bool | str = False,
    settings: Mapping[str, object] | None = None,
    proxy_path: str = "",
    autogenerate_session_id: bool | None = None,
    compress: bool | str = True,
    query_retries: int = 2,
    send_receive_timeout: float = 300,
    form_encode_query_params: bool = False,
) -> AsyncClient: ...
