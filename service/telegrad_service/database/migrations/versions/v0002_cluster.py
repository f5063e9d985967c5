"""The workers, sessions and functions of a cluster, and the secrets that sign what gateways tell workers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "workers",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("url", sa.String(500), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("version", sa.String(40), nullable=False),
        sa.Column("lease_until", sa.Float(53), nullable=False),
        sa.Column("started_at", sa.Float(53), nullable=False),
        sa.Column("keeps_sessions", sa.Boolean(), nullable=False),
        sa.Column("devices", sa.Text(), nullable=False),
        sa.Column("sessions", sa.Integer(), nullable=False),
        sa.Column("max_sessions", sa.Integer(), nullable=False),
        sa.Column("load", sa.Float(53), nullable=False),
        sa.Column("free_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )
    op.create_table(
        "cluster_sessions",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("reserved_name", sa.String(200), nullable=True),
        sa.Column("creation_key", sa.String(64), nullable=True),
        sa.Column("worker", sa.String(32), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("durable", sa.Boolean(), nullable=False),
        sa.Column("device", sa.String(60), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_cluster_sessions"),
        sa.UniqueConstraint("id", name="uq_cluster_sessions_id"),
        sa.UniqueConstraint("tenant", "reserved_name", name="uq_cluster_sessions_name"),
        sa.UniqueConstraint("tenant", "creation_key", name="uq_cluster_sessions_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_cluster_sessions_worker", "cluster_sessions", ["worker"])
    op.create_table(
        "cluster_secrets",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("secret", sa.String(100), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_cluster_secrets"),
    )
    op.create_table(
        "cluster_functions",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_cluster_functions"),
        sa.UniqueConstraint("name", name="uq_cluster_functions_name"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("cluster_functions", "cluster_secrets", "cluster_sessions", "workers"):
        op.drop_table(table)
