"""Why prompt tokens were not reused, in the usage ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

REASONS = (
    *("parity", "routed_away", "worker_lost", "evicted", "tier_dropped", "not_stored", "salt_rotated"),
    *("diverged_tools", "diverged_system", "diverged_history", "diverged_volatile", "first_seen", "below_block"),
)


def upgrade() -> None:
    # Rows of before have no reasons: NULL, which no sum counts.
    op.add_column("ledger", sa.Column("template", sa.Text()))
    op.add_column("ledger", sa.Column("explanation", sa.Text()))
    for reason in REASONS:
        op.add_column("ledger", sa.Column(f"miss_{reason}", sa.Integer()))


def downgrade() -> None:
    for reason in REASONS:
        op.drop_column("ledger", f"miss_{reason}")
    op.drop_column("ledger", "explanation")
    op.drop_column("ledger", "template")
