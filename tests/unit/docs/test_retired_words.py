"""Code and pages use no word that the glossary has retired, and no name that was renamed."""

import re

from support.paths import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
_FOLDERS = ("apps", "controller", "deploy", "docs", "experiments", "scripts", "tests", "topologies")
_SUFFIXES = {".c", ".h", ".js", ".json", ".md", ".py", ".sh", ".yaml", ".yml"}
_OWN_WORDS = {  # files that must name what is retired
    "CHANGELOG.md",
    "controller/whatif/recording.py",  # the columns of old recordings
    "docs/glossary.md",
    "tests/unit/docs/test_retired_words.py",
}
_ROW = re.compile(r"^\| ([a-z ]+) \| [^|]+ \|$", re.MULTILINE)
_TEXTS = (
    "/v1/entries",
    "dets ledger",
    "dets entry ",
    "dets victims",
    "dets-hop",
    "live page",
    "is not active any more",
)
_NAMES = {
    *("EntryTable", "RollCall", "SpareTime", "hosts_heard", "hosts_said", "look_ms"),
    *("demand_receive_bps", "demand_send_bps", "dropped_send_limit_bps", "enforceable_why", "heard_ms", "missed_s"),
    *("missed_last_hour_s", "missing_since", "next_bound", "notified_s_ago", "over_rounds", "owed_bps"),
    *("set_meters", "skipped_intervals", "unanswered_polls"),
    *("Beforehand", "TwoPlaces", "audit_wanted", "brought_bps"),
    *("crowded_of", "judge_touched", "least_of_senders", "make_own", "of_limiters", "of_unknown_links_bps"),
    *("note_taken_as", "place_name", "put_own", "sent_to_elsewhere", "stand_at", "standing_still", "taken_as"),
    *("breathe", "carried_vns", "forget_counters", "forget_rows", "hear_hello", "hear_owners", "most_burst_s"),
    *("take_agent_frames", "take_frames", "take_grants", "take_host_changes", "take_messages", "take_questions"),
    *("take_updates", "wanted_meters", "wanted_role", "LEAST_FLOOD_BPS", "LOOK_EVERY_S", "MOST_BYTES", "MOST_LIMITS"),
    *("MOST_NAMED", "POLL_PATIENCE_S", "REPORTS_AT_ONCE"),
    *("dets_agents", "dets_cluster_orphaned_switches", "dets_cluster_strangers_total", "dets_entries"),
    *("dets_config_read_timestamp_seconds", "dets_control_frames_refused_total", "dets_entries_held"),
    *("dets_hub_lag_seconds", "dets_loop_seconds", "dets_loop_set_meters_total", "dets_loop_skipped_intervals_total"),
    *("dets_loop_unanswered_polls_total", "dets_openflow_cut_off_total", "dets_openflow_errors_total"),
    *("dets_openflow_strangers", "dets_port_promised_bits_per_second", "dets_vn_guarantee_missed_seconds_total"),
    *("dets_vn_guarantee_missing", "dets_vn_reports_dropped_total", "dets_vn_send_guarantee_missing"),
    *("DetsAgentMistrusted", "DetsGuaranteeMissed", "DetsHostsFlap", "DetsHubLag", "DetsLeaseOld", "DetsNobodyActive"),
    *("DetsQueuesFailed", "DetsRefused", "DetsReportsDropped", "DetsRestRefuses", "DetsStoreRefused", "DetsStrangers"),
    *("DetsSwitchClaimed", "DetsSwitchCutOff", "DetsTablesMended"),
    *("CutFabric", "EntryPath", "HostPlaces", "MISTRUSTED", "MISTRUST_S", "Nursery", "PlainApp", "RestDesk"),
    *("Saboteur", "SharedFabric", "SharedRun", "bytes_per_entry", "entries_per_s", "entry_list", "entry_row"),
    *(
        "entry_rows",
        "entry_views",
        "looked_before_s",
        "mistrusted",
        "narrow_core",
        "nursery",
        "rest_desk",
        "said_lost_bits",
    ),
    *("cut_fabric", "plain_app", "saboteur", "shared_blast", "shared_fabric"),
}


def retired_words() -> list[str]:
    """Return the left column of the glossary's last table."""
    table = GLOSSARY.read_text(encoding="utf-8").partition("## Retired words")[2]
    return [words for words in _ROW.findall(table) if words != "retired"]


def retired(text: str) -> set[str]:
    """Return the retired words, names and texts in a text; words also as ``roll_call`` or over the end of a line."""
    plain = re.sub(r"[\s_]+", " ", text.lower())
    return (
        {words for words in retired_words() if re.search(rf"\b{words}s?\b", plain)}
        | _NAMES.intersection(re.findall(r"\w+", text))
        | {one for one in _TEXTS if one in plain}
    )


def texts() -> dict[str, str]:
    """Return the project's own text files by path."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("*.py"), *(one for top in _FOLDERS for one in (ROOT / top).rglob("*"))]
    paths = {str(one.relative_to(ROOT)): one for one in files if one.suffix in _SUFFIXES and "vendor" not in one.parts}
    return {name: path.read_text(encoding="utf-8") for name, path in paths.items() if name not in _OWN_WORDS}


def test_nothing_retired_is_used() -> None:
    found = {name: retired(text) for name, text in texts().items()}
    assert {name: words for name, words in found.items() if words} == {}


def test_what_is_retired_is_found() -> None:
    text = "many Roll\n    calls, spare_time; GET /v1/entries; dets_entries, dets_entries_x, payroll call"
    assert retired(text) == {"roll call", "spare time", "/v1/entries", "dets_entries"}
    assert len(retired_words()) > 5
