"""The tables. A migration exists for every change made here; tests compare the two on both databases."""

from sqlalchemy import BigInteger, CheckConstraint, Double, ForeignKey, Index, Integer, MetaData, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column

# Named constraints, so that a later migration can drop one by the same name on every database.
NAMES = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(MappedAsDataclass, DeclarativeBase, kw_only=True):
    """Text is unbounded and times are 64-bit on every database: no row is refused for its width."""

    metadata = MetaData(naming_convention=NAMES)
    type_annotation_map = {str: Text, int: Integer, float: Double}  # noqa: RUF012 (read by SQLAlchemy before an instance exists)


class Tenant(Base):
    """A customer. `id` is a slug and never changes: the cache scope `tenant:<id>` is made from it."""

    __tablename__ = "tenants"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    created_at: Mapped[int] = mapped_column(BigInteger)
    disabled_at: Mapped[int | None] = mapped_column(BigInteger, default=None)


class ApiKey(Base):
    """A key's public half and the digest of the whole; the plaintext is kept nowhere.

    id        the public 12 characters inside the plaintext, for lookup and for people
    digest    SHA-256 of the plaintext, hex; the secret carries 256 bits, so no slow hash is needed
    """

    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint("role IN ('tenant', 'admin')", name="role"),
        CheckConstraint("(role = 'admin') = (tenant_id IS NULL)", name="admin_has_no_tenant"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str | None] = mapped_column(ForeignKey("tenants.id"), index=True)
    role: Mapped[str]
    digest: Mapped[str] = mapped_column(repr=False)
    name: Mapped[str]
    created_at: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[int | None] = mapped_column(BigInteger, default=None)
    revoked_at: Mapped[int | None] = mapped_column(BigInteger, default=None)
    last_used_at: Mapped[int | None] = mapped_column(BigInteger, default=None)


class SaltEpoch(Base):
    """How often a cache scope's salt was rotated. A scope without a row is at epoch 0."""

    __tablename__ = "salt_epochs"

    scope: Mapped[str] = mapped_column(primary_key=True)
    epoch: Mapped[int]
    rotated_at: Mapped[int] = mapped_column(BigInteger)


class RetentionRow(Base):
    """What of a tenant's requests is kept, and how long. A tenant without a row has no policy."""

    __tablename__ = "retention_policies"
    __table_args__ = (
        CheckConstraint("priority BETWEEN 0 AND 100", name="priority"),
        CheckConstraint("ttl_seconds BETWEEN 1 AND 604800", name="ttl"),
        CheckConstraint("part IN ('system', 'conversation')", name="part"),
    )

    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    priority: Mapped[int]
    ttl_seconds: Mapped[int]
    part: Mapped[str]
    changed_at: Mapped[int] = mapped_column(BigInteger)


class LedgerRow(Base):
    """One request, as it was served. Token counts are of this request; times are milliseconds.

    request_id   made by the gateway, never taken from a client: a second row of the same id is dropped as a repeat
    available    prompt tokens that some worker of the fleet held at decision time
    predicted    of those, on the chosen worker
    cached       the worker's own count of what it reused
    miss_*       prompt tokens that were not reused, by reason, 0 for one that no token has; they add up to
                 prompt - cached. None where no worker told what it reused
    template     names the system prompt and tools within the tenant; None where nothing was rendered
    explanation  JSON: where the prompt left an earlier one, and the decision with its costs; never text

    No foreign keys: a refused request has no tenant, and a bill outlives the key that it was made with.
    """

    __tablename__ = "ledger"
    __table_args__ = (
        Index("ix_ledger_created_at", "created_at"),
        Index("ix_ledger_tenant_id_created_at", "tenant_id", "created_at"),
    )

    request_id: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[int] = mapped_column(BigInteger)
    dialect: Mapped[str]
    status: Mapped[int]
    tenant_id: Mapped[str | None] = mapped_column(default=None)
    key_id: Mapped[str | None] = mapped_column(default=None)
    model: Mapped[str | None] = mapped_column(default=None)
    worker_id: Mapped[str | None] = mapped_column(default=None)
    finish_reason: Mapped[str | None] = mapped_column(default=None)
    error_code: Mapped[str | None] = mapped_column(default=None)
    streamed: Mapped[bool] = mapped_column(default=False)
    prompt_tokens: Mapped[int] = mapped_column(default=0)
    cached_tokens: Mapped[int] = mapped_column(default=0)
    predicted_tokens: Mapped[int] = mapped_column(default=0)
    available_tokens: Mapped[int] = mapped_column(default=0)
    completion_tokens: Mapped[int] = mapped_column(default=0)
    placement_mode: Mapped[str | None] = mapped_column(default=None)
    placement_reason: Mapped[str | None] = mapped_column(default=None)
    queue_ms: Mapped[float | None] = mapped_column(default=None)
    ttft_ms: Mapped[float | None] = mapped_column(default=None)
    duration_ms: Mapped[float] = mapped_column(default=0.0)
    overhead_ms: Mapped[float] = mapped_column(default=0.0)
    template: Mapped[str | None] = mapped_column(default=None)
    explanation: Mapped[str | None] = mapped_column(default=None)
    miss_parity: Mapped[int | None] = mapped_column(default=None)
    miss_routed_away: Mapped[int | None] = mapped_column(default=None)
    miss_worker_lost: Mapped[int | None] = mapped_column(default=None)
    miss_evicted: Mapped[int | None] = mapped_column(default=None)
    miss_tier_dropped: Mapped[int | None] = mapped_column(default=None)
    miss_not_stored: Mapped[int | None] = mapped_column(default=None)
    miss_salt_rotated: Mapped[int | None] = mapped_column(default=None)
    miss_diverged_tools: Mapped[int | None] = mapped_column(default=None)
    miss_diverged_system: Mapped[int | None] = mapped_column(default=None)
    miss_diverged_history: Mapped[int | None] = mapped_column(default=None)
    miss_diverged_volatile: Mapped[int | None] = mapped_column(default=None)
    miss_first_seen: Mapped[int | None] = mapped_column(default=None)
    miss_below_block: Mapped[int | None] = mapped_column(default=None)


MISS = "miss_"
MISSES = tuple(column.key for column in LedgerRow.__table__.columns if column.key.startswith(MISS))
"""The columns that say why prompt tokens were not reused."""
