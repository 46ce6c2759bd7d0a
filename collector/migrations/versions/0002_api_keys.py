"""API keys and what of their daily quota is used."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("project", sa.String, nullable=False, index=True),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("roles", sa.JSON, nullable=False),
        sa.Column("secret_hash", sa.String, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float),
        sa.Column("revoked_at", sa.Float),
        sa.Column("last_used_at", sa.Float),
        sa.Column("events_per_second", sa.Float),
        sa.Column("bytes_per_day", sa.BigInteger),
        sa.Column("used_day", sa.String),
        sa.Column("used_bytes", sa.BigInteger, nullable=False, server_default="0"),
    )
