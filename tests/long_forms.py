"""The long forms: tests that `make test` leaves out, and the parameters with which it runs them.

`make test-all` runs all of them. Each repeats the question of a test that stays, with more
parameters or a larger load, or costs minutes and looks at something that rarely changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

# By file and test: the parameters, as patterns of ids, that `make test` runs all the same.
LONG_FORMS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "broker/test_any_bytes.py": {"test_whatever_comes_is_answered_or_closed": ["open-*"]},
    "bench/test_questions.py": {
        "test_a_question_is_answered": ["round-trips"],
        "test_a_curve_has_a_point_for_each_size": ["connections"],
        "test_kafka_answers_as_well": ["round-trips"],
    },
    "broker/test_consumer_groups_clients.py": {"test_members_survive_a_restart_of_the_broker": []},
    "broker/test_dynamic_configs_against_kafka.py": {
        "test_each_option_is_taken_as_a_trial_where_kafka_takes_it": [],
    },
    "broker/test_hostile.py": {"test_a_bomb_is_refused_in_bounded_memory": ["open-1-*"]},
    "broker/test_produce_costs.py": {
        "test_no_batch_holds_the_loop_or_fills_the_memory": ["headers *", "sound *"],
    },
    "broker/test_shares_against_kafka.py": {
        "test_members_get_the_same": ["0", "18"],
        "test_a_member_that_leaves_releases_its_records": [],
    },
    "broker/test_web_sweep.py": {
        "test_stored_data_does_no_harm": ["GET-/api/get", "GET-/api/topics*"],
    },
    "cleaner/test_proof.py": {
        "test_a_batch_of_many_tiny_records_takes_no_more_than_its_bytes": ["all is dirty"],
    },
    "cli/test_hostile_files.py": {
        "test_a_hostile_segment_is_dumped_within_bounds": ["[!v]*"],
    },
    "cli/test_produce_consume.py": {
        "test_json_that_is_produced_is_consumed_the_same": ["[!k]*"],
    },
    "compat/test_clients.py": {
        "test_a_client_sees_every_record_once_and_in_order": ["[!k]*"],
    },
    "compat/test_group_storm.py": {"test_a_few_members_and_restarts": []},
    "docs/test_commands.py": {"test_the_commands_of_a_page_do_what_it_says": ["README.md"]},
    "docs/test_site.py": {"test_a_browser_asks_nobody_else_and_finds_words": []},
    "fuzz/test_costs.py": {
        "test_a_search_finds_what_takes_the_square_of_some_bytes": [],
    },
    "page/test_page.py": {"test_everybody_can_use_it": ["390-dark"]},
    "pipeline/test_audit.py": {
        "test_a_topic_that_nothing_befell_holds": [],
        "test_each_damage_is_found_with_its_key_and_nothing_else": [],
        "test_a_table_is_held_against_the_topic_that_it_was_kept_of": [],
    },
    "pipeline/test_compacted_topic.py": {
        "test_a_stream_reads_to_the_end_and_continues_after_a_restart": [],
        "test_a_topic_that_ends_in_a_transaction_marker_is_read_to_its_end": [
            "read_committed-abort", "abort-read_committed",
        ],
    },
    "pipeline/test_materialize.py": {
        "test_batches_may_be_applied_again_and_come_to_the_same_table": [],
        "test_a_table_may_be_named_by_a_relative_path": [],
        "test_values_are_read_by_an_avro_schema": [],
        "test_rows_whose_tombstones_are_gone_are_found_by_reconciling": [],
        "test_a_table_and_its_checkpoint_match_after_any_kill": [],
        "test_a_table_and_a_checkpoint_that_would_lose_records_are_refused": [],
    },
    "pipeline/test_plan.py": {"test_the_command_reports_in_text_and_json_and_draws": []},
    "pipeline/test_plan_against_cleaners.py": {"test_one_run_of_odradek_is_predicted": []},
    "pipeline/test_segments.py": {
        "test_apache_kafkas_files_hold_what_it_serves": [],
        "test_the_files_hold_what_the_broker_serves": ["read_committed"],
        "test_data_that_cannot_be_read_is_reported_in_one_line_through_spark": [],
    },
    "pipeline/test_source_against_kafka.py": {
        "test_a_stream_to_the_end_has_the_same_batches": [],
        "test_a_stream_goes_on_after_tails_that_nobody_sees": [],
        "test_a_pattern_finds_topics_and_partitions_while_a_stream_runs": [],
    },
    "pipeline/test_ticket_service.py": {
        "test_a_new_group_reads_all_from_the_beginning": [],
        "test_a_consumer_during_a_republication_ends_with_what_is_last": [],
    },
    "simulation/test_shared.py": {"test_many_histories_keep_their_promises": []},
    "simulation/test_scripts.py": {"test_a_crash_at_every_operation_of_a_script": ["2"]},
    "test_makefile.py": {
        "test_make_check_needs_no_more_than_the_development_packages": [],
    },
}


def is_long(node_id: str) -> bool:
    """Return whether `make test` leaves out a test: "tests/page/test_page.py::test_it[dark]"."""
    file, _, test = node_id.partition("::")
    name, _, parameter = test.partition("[")
    kept = LONG_FORMS.get(file.removeprefix("tests/"), {}).get(name)
    return kept is not None and not any(fnmatchcase(parameter[:-1], one) for one in kept)
