"""Labels of queries, and what each evaluation against them found."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "labels",
        sa.Column("project", sa.String, primary_key=True),
        sa.Column("query_key", sa.String, primary_key=True),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("expected", sa.JSON, nullable=False),
        sa.Column("language", sa.String),
        sa.Column("cluster", sa.String),
        sa.Column("labelled_at", sa.Float, nullable=False),
    )
    op.create_table(
        "label_evaluations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("project", sa.String, nullable=False, index=True),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("evaluated_at", sa.Float, nullable=False),
        sa.Column("what", sa.JSON, nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
    )
    op.create_table(
        "label_results",
        sa.Column("evaluation_id", sa.Integer, primary_key=True),
        sa.Column("query_key", sa.String, primary_key=True),
        sa.Column("expected", sa.JSON, nullable=False),
        sa.Column("ranks", sa.JSON, nullable=False),
        sa.Column("ndcg_at_10", sa.Float, nullable=False),
    )
