import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from gateway.cli import main
from tenants import Database, KeyRejectedError, KeyStore, LedgerRow, Principal, SaltStore, now_ms


class Terminal:
    """Runs `saltway ...` in this process, over one home folder."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.database = f"sqlite:///{home}/saltway.db"
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._monkeypatch.setattr(sys, "argv", ["saltway", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = self._capsys.readouterr()
        return int(left.value.code or 0), out, err

    def output(self, *arguments: str) -> str:
        code, out, err = self.run(*arguments)
        assert code == 0, err
        return out

    def principal(self, key: str) -> Principal:
        async def ask() -> Principal:
            async with Database(self.database) as database:
                return await KeyStore(database).authenticate(key, now_ms())

        return asyncio.run(ask())


@pytest.fixture
def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("SALTWAY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Terminal(tmp_path, capsys, monkeypatch)


def test_a_tenant_and_its_key_from_nothing(terminal: Terminal) -> None:
    terminal.output("tenant", "create", "acme", "--name", "Acme, Inc.")
    key = terminal.output("key", "create", "acme", "--name", "ci").strip()
    principal = terminal.principal(key)
    assert principal == Principal("acme", key[6:18], "tenant")
    assert re.search(r"acme +Acme, Inc\. +\d{4}-\d\d-\d\d \d\d:\d\d +-\n", terminal.output("tenant", "list"))
    listed = terminal.output("key", "list", "acme")
    assert re.search(rf"{principal.key_id} +acme +ci ", listed)
    assert key[-43:] not in listed


def test_a_revoked_key_opens_nothing(terminal: Terminal) -> None:
    terminal.output("tenant", "create", "acme")
    key = terminal.output("key", "create", "acme").strip()
    terminal.output("key", "revoke", key[6:18])
    with pytest.raises(KeyRejectedError, match="revoked"):
        terminal.principal(key)


def test_the_keys_of_a_tenant_that_is_switched_off_open_nothing_until_it_is_on_again(terminal: Terminal) -> None:
    terminal.output("tenant", "create", "acme")
    key = terminal.output("key", "create", "acme").strip()
    terminal.output("tenant", "disable", "acme")
    with pytest.raises(KeyRejectedError, match="disabled"):
        terminal.principal(key)
    assert not terminal.output("tenant", "list").rstrip().endswith("-")
    terminal.output("tenant", "enable", "acme")
    assert terminal.principal(key).tenant_id == "acme"
    assert "no tenant nobody" in terminal.run("tenant", "disable", "nobody")[2]


def test_an_administrators_key_has_no_tenant(terminal: Terminal) -> None:
    key = terminal.output("key", "create", "--admin", "--expires-days", "30").strip()
    assert terminal.principal(key) == Principal(None, key[6:18], "admin")
    assert "(admin)" in terminal.output("key", "list")


def test_rotating_a_salt_prints_its_epoch(terminal: Terminal) -> None:
    terminal.output("tenant", "create", "acme")
    assert terminal.output("salt", "rotate", "tenant:acme") == "1\n"
    assert terminal.output("salt", "rotate", "tenant:acme") == "2\n"

    async def epoch() -> int:
        async with Database(terminal.database) as database:
            return await SaltStore(database).current("tenant:acme")

    assert asyncio.run(epoch()) == 2


def test_what_a_tenant_sends_is_kept_until_it_is_not(terminal: Terminal) -> None:
    terminal.output("tenant", "create", "acme")
    assert terminal.output("retention", "show", "acme") == "PRIORITY  TTL SECONDS  PART\n"
    terminal.output("retention", "set", "acme", "--priority", "60", "--ttl-seconds", "3600", "--part", "system")
    assert re.search(r"^60 +3600 +system\n", terminal.output("retention", "show", "acme"), re.MULTILINE)
    terminal.output("retention", "clear", "acme")
    assert "3600" not in terminal.output("retention", "show", "acme")


@pytest.mark.parametrize(
    ("tenant", "priority", "seconds", "complaint"),
    [
        ("acme", "101", "60", "priority: Must be between 0 and 100."),
        ("acme", "50", "0", "ttl_seconds: Must be between 1 and 604800."),
        ("initech", "50", "60", "There is no tenant initech"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_in_one_sentence(
    terminal: Terminal, tenant: str, priority: str, seconds: str, complaint: str
) -> None:
    terminal.output("tenant", "create", "acme")
    code, out, err = terminal.run("retention", "set", tenant, "--priority", priority, "--ttl-seconds", seconds)
    assert (code, out) == (1, "")
    assert complaint in err


EXPLANATION = (
    '{"placed":{"worker":"w0","mode":"events","reason":"prefix","cost_ms":{"queue":1.5,"total":1.5},'
    '"runner_up":null,"runner_up_cost_ms":null},'
    '"diverged":{"part":"system","kind":"volatile","index":0,"token":5,"tokens":48}}'
)


def test_a_request_of_the_ledger_is_explained(terminal: Terminal) -> None:
    terminal.output("tenant", "list")  # makes the schema
    row = LedgerRow(
        request_id="req_1",
        created_at=1,
        dialect="chat",
        status=200,
        tenant_id="acme",
        template="0a1b2c3d",
        explanation=EXPLANATION,
        prompt_tokens=70,
        cached_tokens=0,
        miss_diverged_volatile=48,
        miss_first_seen=16,
        miss_below_block=6,
    )

    async def store() -> None:
        async with Database(terminal.database) as database, database.transaction() as session:
            session.add(row)

    asyncio.run(store())
    words = terminal.output("explain", "req_1")
    assert re.search(r"^  diverged_volatile +48 +68\.6 %", words, re.MULTILINE)
    assert "diverged in system[0], token 5: volatile; it cost 48 tokens\n  A value that differs" in words
    assert "placed on w0 (prefix): it held more of the prompt than the next best\n  by events: " in words
    assert "\n  w0                      1.5 ms = queue 1.5\n  queue " in words
    told = json.loads(terminal.output("explain", "req_1", "--json"))
    assert told["missed_tokens"] == {"diverged_volatile": 48, "first_seen": 16, "below_block": 6}
    assert told["diverged"]["tokens"] == 48


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("tenant", "create", "Not A Slug"), "lower-case letters"),
        (("key", "create", "nobody"), "There is no tenant nobody"),
        (("key", "create"), "either a tenant or --admin"),
        (("key", "create", "acme", "--admin"), "either a tenant or --admin"),
        (("key", "create", "acme", "--expires-days", "0"), "expires-days"),
        (("key", "list", "nobody"), "There is no tenant nobody"),
        (("key", "revoke", "nothing"), "There is no key nothing"),
        (("salt", "rotate", "acme"), "tenant:ID, group:ID or public"),
        (("salt", "rotate", "tenant:nobody"), "There is no tenant nobody"),
        (("up", "--port", "0"), "Option port must be a whole number, 1 to 65535"),
        (("up", "--model", "/no/such.gguf"), "Cannot read the model /no/such.gguf"),
        (("explain", "req_none"), "The ledger has no request req_none; it is there a second after the request's end."),
        (("config", "docs", "--write", "/no/such/folder/out.md"), "Cannot write /no/such/folder/out.md (No such file"),
        (("serve",), "It needs workers: name them in SALTWAY_WORKER_URLS, or run `saltway up`"),
        (("sing",), "No such command"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    terminal: Terminal, arguments: tuple[str, ...], complaint: str
) -> None:
    code, out, err = terminal.run(*arguments)
    assert code != 0
    assert out == ""
    assert complaint in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql://root:hunter2@h/n", "Option database_url: 'mysql' databases are not supported"),
        ("postgresql://root:hunter2@127.0.0.1:1/n", "The database cannot be used (ConnectionRefusedError)"),
        ("postgresql://root:hunter2@h/n?application_name=x", "the parameter application_name is not supported"),
        ("sqlite:////no/such/folder/x.db", "The database cannot be used (FileNotFoundError)"),
    ],
)
def test_a_database_that_cannot_be_used_is_said_without_its_password(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, url: str, complaint: str
) -> None:
    monkeypatch.setenv("SALTWAY_DATABASE_URL", url)
    code, _, err = terminal.run("tenant", "list")
    assert code == 1
    assert complaint in err
    assert "hunter2" not in err


def test_a_database_of_a_later_version_is_said_to_be_one(terminal: Terminal) -> None:
    terminal.output("tenant", "create", "acme")

    async def move_on() -> None:
        async with Database(terminal.database) as database, database.transaction() as session:
            await session.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    asyncio.run(move_on())
    code, out, err = terminal.run("tenant", "list")
    assert (code, out) == (1, "")
    assert err == "saltway: The database was made by a later version of Saltway; run that one, or a later one.\n"


def test_the_settings_in_force_are_shown(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SALTWAY_PORT", "9000")
    assert "\nport = 9000\n" in terminal.output("config", "show")


def test_the_description_is_printed_or_written(terminal: Terminal, tmp_path: Path) -> None:
    printed = terminal.output("config", "docs")
    terminal.output("config", "docs", "--write", str(tmp_path / "out.md"))
    assert (tmp_path / "out.md").read_text() == printed


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-m", "gateway", "--help"], capture_output=True, text=True, check=True)
    for command in ("config", "explain", "key", "retention", "salt", "serve", "tenant", "up"):
        assert re.search(rf"^  {command} ", ran.stdout, re.MULTILINE)
