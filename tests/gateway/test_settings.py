import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.options import options
from gateway.settings import Limits, Settings, SettingsError, documentation, load, shown

REPOSITORY = Path(__file__).parents[2]


def settings(tmp_path: Path, toml: str = "", **environ: str) -> Settings:
    (tmp_path / "saltway.toml").write_text(toml)
    return load(environ=environ, folder=tmp_path)


def test_without_anything_set_the_defaults_hold(tmp_path: Path) -> None:
    assert load(environ={}, folder=tmp_path) == Settings()


def test_the_command_line_wins_over_variables_and_they_win_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "saltway.toml").write_text("port = 1\nworkers = 3\nmodel = 'from-file'")
    environ = {"SALTWAY_PORT": "2", "SALTWAY_WORKERS": "4"}
    found = load({"port": 3, "workers": None}, environ=environ, folder=tmp_path)
    assert (found.port, found.workers, found.model) == (3, 4, "from-file")


def test_a_table_is_set_by_file_and_by_variable(tmp_path: Path) -> None:
    found = settings(tmp_path, "[limits]\nbody_bytes = 2048\nsend_ms = 5000", SALTWAY_LIMITS_BODY_BYTES="4096")
    assert found.limits == Limits(body_bytes=4096, send_ms=5000)


def test_a_list_is_separated_by_commas_in_a_variable(tmp_path: Path) -> None:
    assert settings(tmp_path, "worker_urls = ['http://a']").worker_urls == ("http://a",)
    assert settings(tmp_path, SALTWAY_WORKER_URLS="http://a, http://b,").worker_urls == ("http://a", "http://b")


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert settings(tmp_path, "port = 9", SALTWAY_PORT="").port == 9


def test_a_named_file_is_read_in_place_of_the_folders_own(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("port = 7")
    assert settings(tmp_path, "port = 9", SALTWAY_CONFIG=str(other)).port == 7


def test_the_clients_variables_of_the_demo_are_no_options(tmp_path: Path) -> None:
    client = {"SALTWAY_URL": "u", "SALTWAY_ADMIN_KEY": "k", "SALTWAY_KEY_ACME": "k", "SALTWAY_KEY_GLOBEX": "k"}
    assert settings(tmp_path, **client) == Settings()


@pytest.mark.parametrize(
    ("toml", "environ", "complaint"),
    [
        ("prot = 1", {}, "Unknown option prot in saltway.toml; did you mean port?"),
        ("[limits]\nbody = 1", {}, "Unknown option limits.body in saltway.toml; did you mean limits.body_bytes?"),
        ("zzz = 1", {}, "Unknown option zzz in saltway.toml; `saltway config docs` lists those that exist."),
        ("", {"SALTWAY_PRT": "1"}, "Unknown variable SALTWAY_PRT; did you mean SALTWAY_PORT?"),
        ("", {"SALTWAY_PORT": "x"}, "Option port must be a whole number, 1 to 65535; correct it in"),
        ("port = 0", {}, "Option port must be a whole number, 1 to 65535; correct it in saltway.toml or SALTWAY_PORT"),
        ("port = true", {}, "Option port must be a whole number"),
        ("dtype = 'int4'", {}, "Option dtype must be one of auto, bfloat16, float32"),
        ("home = 1", {}, "Option home must be a path"),
        ("[home]\nx = 1", {}, "Option home must be a path"),
        ("limits = 1", {}, "Option limits must be a table"),
        ("worker_urls = [1]", {}, "Option worker_urls must be a list of addresses with http:// or https://"),
        ("", {"SALTWAY_WORKER_URLS": "http://a:9001,b:9001"}, "Option worker_urls must be a list of addresses with"),
        ("", {"SALTWAY_LIMITS_BODY_BYTES": "1"}, "Option limits.body_bytes must be a whole number, 1024 or more"),
        ("port =", {}, "saltway.toml is not valid TOML"),
        ("", {"SALTWAY_CONFIG": "/no/such.toml"}, "Cannot read /no/such.toml: No such file or directory"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(tmp_path: Path, toml: str, environ: dict[str, str], complaint: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(complaint)):
        settings(tmp_path, toml, **environ)


def test_a_complaint_never_repeats_the_value(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(tmp_path, SALTWAY_PORT="hunter2", SALTWAY_WORKER_TOKEN="hunter2")
    assert "hunter2" not in str(caught.value)


HOST = st.text(st.characters(codec="ascii", exclude_characters=", ", exclude_categories=["C"]), min_size=1)
URL = st.builds("{}://{}".format, st.sampled_from(["http", "https"]), HOST)


@given(
    st.builds(
        Settings,
        port=st.integers(1, 65535),
        workers=st.integers(1, 64),
        dtype=st.sampled_from(["auto", "float32", "bfloat16"]),
        worker_urls=st.lists(URL).map(tuple),
        worker_token=st.text(st.characters(codec="ascii", exclude_categories=["C"])),
        limits=st.builds(Limits, body_bytes=st.integers(1024), send_ms=st.integers(1000)),
    )
)
def test_another_process_gets_the_very_settings_by_environment(given: Settings) -> None:
    found = load(environ=given.environment(), folder=Path("/"))
    assert found.home == Path(".saltway").absolute()
    assert found.environment() == given.environment()


def test_secrets_are_shown_masked(tmp_path: Path) -> None:
    given = settings(tmp_path, SALTWAY_WORKER_TOKEN="hunter2", SALTWAY_DATABASE_URL="postgresql://u:hunter2@h/n")
    assert "worker_token = ***\n" in shown(given)
    assert "database_url = postgresql://u:***@h/n\n" in shown(given)
    assert "hunter2" not in shown(given) + repr(given)


def test_a_database_address_that_is_none_is_not_shown(tmp_path: Path) -> None:
    assert "hunter2" not in shown(settings(tmp_path, SALTWAY_DATABASE_URL="hunter2"))


def test_the_database_is_in_the_home_folder_unless_told_otherwise(tmp_path: Path) -> None:
    assert settings(tmp_path, SALTWAY_HOME="/srv/s").database == "sqlite:////srv/s/saltway.db"
    assert settings(tmp_path, SALTWAY_DATABASE_URL="postgresql://h/n").database == "postgresql://h/n"


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:80"), ("0.0.0.0", "http://127.0.0.1:80"), ("::1", "http://[::1]:80")],
)
def test_the_address_for_clients_is_one_that_they_can_open(host: str, url: str) -> None:
    assert Settings(host=host, port=80).url == url


def test_secrets_are_read_from_their_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 64 + "\n")
    (tmp_path / "worker.token").write_text("token\n")
    given = Settings(home=tmp_path)
    assert given.read_secret() == b"s" * 64
    assert given.read_worker_token() == "token"
    assert Settings(home=tmp_path, worker_token="set").read_worker_token() == "set"


def test_a_missing_or_short_secret_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="`saltway up` makes it"):
        Settings(home=tmp_path).read_secret()
    (tmp_path / "mine").write_text("short")
    with pytest.raises(SettingsError, match="shorter than 32 bytes"):
        Settings(secret_file=str(tmp_path / "mine")).read_secret()


def test_every_option_is_documented() -> None:
    for option in options(Settings):
        assert f"| `{option.name}` | `{option.variable}` | {option.kind} |" in documentation()
        assert option.description in documentation()


def test_the_committed_description_is_current() -> None:
    """When this fails: `saltway config docs --write docs/configuration.md`."""
    assert (REPOSITORY / "docs" / "configuration.md").read_text("utf-8") == documentation()
