"""What of a tenant's requests is kept, and how long."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "retention_policies",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("ttl_seconds", sa.Integer(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name="pk_retention_policies"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_retention_policies_tenant_id_tenants"),
        sa.CheckConstraint("priority BETWEEN 0 AND 100", name=op.f("ck_retention_policies_priority")),
        sa.CheckConstraint("ttl_seconds BETWEEN 1 AND 604800", name=op.f("ck_retention_policies_ttl")),
        sa.CheckConstraint("part IN ('system', 'conversation')", name=op.f("ck_retention_policies_part")),
    )


def downgrade() -> None:
    op.drop_table("retention_policies")
