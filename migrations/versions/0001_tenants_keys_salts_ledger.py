"""Tenants, API keys, salt epochs and the usage ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_tenants()
    _create_api_keys()
    _create_salt_epochs()
    _create_ledger()


def downgrade() -> None:
    for table in ("ledger", "salt_epochs", "api_keys", "tenants"):
        op.drop_table(table)


def _create_tenants() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("disabled_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
    )


def _create_api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text()),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.Column("last_used_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_api_keys_tenant_id_tenants"),
        sa.CheckConstraint("role IN ('tenant', 'admin')", name=op.f("ck_api_keys_role")),
        sa.CheckConstraint("(role = 'admin') = (tenant_id IS NULL)", name=op.f("ck_api_keys_admin_has_no_tenant")),
    )
    op.create_index("ix_api_keys_tenant_id", "api_keys", ["tenant_id"])


def _create_salt_epochs() -> None:
    op.create_table(
        "salt_epochs",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("rotated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope", name="pk_salt_epochs"),
    )


def _create_ledger() -> None:
    counts = ("prompt_tokens", "cached_tokens", "predicted_tokens", "available_tokens", "completion_tokens")
    op.create_table(
        "ledger",
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("dialect", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Text()) for name in ("tenant_id", "key_id", "model", "worker_id")),
        *(sa.Column(name, sa.Text()) for name in ("finish_reason", "error_code")),
        sa.Column("streamed", sa.Boolean(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in counts),
        *(sa.Column(name, sa.Text()) for name in ("placement_mode", "placement_reason")),
        *(sa.Column(name, sa.Double()) for name in ("queue_ms", "ttft_ms")),
        *(sa.Column(name, sa.Double(), nullable=False) for name in ("duration_ms", "overhead_ms")),
        sa.PrimaryKeyConstraint("request_id", name="pk_ledger"),
    )
    op.create_index("ix_ledger_created_at", "ledger", ["created_at"])
    op.create_index("ix_ledger_tenant_id_created_at", "ledger", ["tenant_id", "created_at"])
