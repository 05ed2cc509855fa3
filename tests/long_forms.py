"""The long forms: tests that `make test` leaves out, and those that it runs instead.

`make test-all` runs all of them. Each repeats the question of a test that stays, with more
parameters, a larger load or another peer, or costs much and looks at something that rarely
changes: all comparisons with Kafka but the main ones are here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

ALL = ("*",)
# Sweeps over all APIs look at these.
APIS = ("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "JoinGroup")

# By file and test (both may be patterns, the first that fits counts): the parameters, as patterns
# of ids, that `make test` runs all the same. A test without parameters has an empty id.
LONG_FORMS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "authorization/test_matrix_against_kafka.py": {"*": []},
    "bench/test_pictures.py": {
        "test_a_tombstone_outlives_the_first_cleaning_and_not_the_second": [],
    },
    "bench/test_questions.py": {
        "test_a_question_is_answered": ["round-trips"],
        "test_a_curve_has_a_point_for_each_size": [],
        "test_kafka_answers_as_well": [],
    },
    "bench/test_scale.py": {
        "test_a_catalog_asks_for_the_computed_time": [],
        "test_a_broker_stores_as_computed": [],
    },
    "bench/test_shared.py": {
        "test_a_question_about_shared_topics_is_answered": ["small"],
        "test_shared_topics_work_with_the_delays_of_a_cloud": [],
    },
    "bench/test_tasks.py": {"test_each_task_is_done_twice": []},
    "bench/test_year.py": {
        "test_few_updates_over_many_old_keys_cost_half": [],
        "test_our_cleaner_reads_and_writes_as_computed": ["True-zipf-0.005"],
        "test_kafkas_cleaner_writes_as_computed": [],
        "test_no_pattern_makes_it_write_more_than_kafkas_cleaner": [
            "uniform-local", "zipf-shared",
        ],
    },
    "broker/test_acls_against_kafka.py": {"*": []},
    "broker/test_adoption_against_kafka.py": {"*": []},
    "broker/test_any_bytes.py": {
        "test_whatever_comes_is_answered_or_closed": ["open-*"],
        "test_memory_is_bounded_by_the_frame": [f"open-{api}" for api in APIS],
    },
    "broker/test_append_against_kafka.py": {
        "test_the_table": [],
        "test_mutations": [],
        "test_each_version": [],
    },
    "broker/test_assignors_kafka.py": {"test_groups_that_change_are_assigned_as_by_kafka": []},
    "broker/test_authorizer_against_kafka.py": {"*": []},
    "broker/test_catalog_clock.py": {
        "test_no_session_is_lost_or_held_when_the_databases_clock_jumps": [],
    },
    "broker/test_catalog_faults.py": {
        "test_brokers_serve_until_their_sessions_end_when_the_database_is_read_only": [
            "set_by_reload",
        ],
    },
    "broker/test_catalog_moves.py": {
        "test_a_crash_on_the_way_*_loses_nothing": ["sqlite*"],
        "test_a_disk_that_refuses_a_step_loses_nothing": ["sqlite*"],
    },
    "broker/test_checking.py": {"*": ["sqlite*", ""]},
    "broker/test_clean_stop.py": {
        "test_pipelined_idempotent_producers_live_through_clean_stops": ["2"],
    },
    "broker/test_cleaned_transactions_against_kafka.py": {"*": []},
    "broker/test_cluster_against_kafka.py": {"*": []},
    "broker/test_cluster_clients.py": {
        "test_a_killed_broker_loses_nothing_and_nothing_comes_twice": ["postgresql"],
        "test_a_group_survives_the_death_of_its_coordinator": ["sqlite"],
        "*": [],
    },
    "broker/test_consumer_groups_against_kafka.py": {
        "test_members_that_come_and_go_are_served_as_by_kafka": ["[0-4]"],
        "test_topics_that_share_a_place_of_tables_have_the_order_of_kafka": ["400"],
    },
    "broker/test_consumer_groups_clients.py": {
        "test_members_survive_a_restart_of_the_broker": [],
        "test_a_group_changes_its_protocol_while_its_members_consume": [],
    },
    "broker/test_conversions.py": {
        "test_a_topic_goes_to_and_fro": ["postgresql"],
        "*": ["sqlite*", ""],
    },
    "broker/test_costs.py": {
        "test_time_and_memory_are_bounded_by_the_bytes": APIS,
    },
    "broker/test_damage.py": {
        "test_a_damaged_file_costs_no_more_than_what_was_in_it": ["killed-.[ik]*-0"],
    },
    "broker/test_dashboard.py": {"test_prometheus_answers_each_query": []},
    "broker/test_dynamic_configs_against_kafka.py": {
        "test_each_option_is_taken_as_a_trial_where_kafka_takes_it": [],
        "test_each_option_is_taken_where_kafka_takes_it": [],
        "test_stores_that_cannot_be_used_are_refused_as_in_kafka": ["keystore at {*"],
    },
    "broker/test_exactly_once.py": {"*": []},
    "broker/test_fetch_against_kafka.py": {
        "test_sessions": [],
        "test_any_replica_id_and_isolation_is_answered_as_by_kafka": [],
    },
    "broker/test_groups_expiry_against_kafka.py": {"*": []},
    "broker/test_groups_kafka.py": {"*": []},
    "broker/test_hostile.py": {"test_a_bomb_is_refused_in_bounded_memory": ["open-1-1"]},
    "broker/test_leasing.py": {"test_a_job_cleans*": ALL, "*": ["sqlite*", ""]},
    "broker/test_legacy_against_kafka.py": {"*": []},
    "broker/test_map_orders_against_kafka.py": {"*": []},
    "broker/test_map_orders_kafka.py": {"*": []},
    "broker/test_metric_names_against_kafka.py": {"*": []},
    "broker/test_oauthbearer_against_kafka.py": {"*": []},
    "broker/test_orders_against_kafka.py": {"*": []},
    "broker/test_partition_admin_against_kafka.py": {"*": []},
    "broker/test_peer_logins_against_kafka.py": {"*": []},
    "broker/test_peers.py": {
        "test_connections_whose_login_ends_are_replaced_before": ["SCRAM*"],
    },
    "broker/test_poisoned_logs_against_kafka.py": {"*": []},
    "broker/test_produce_costs.py": {
        "test_no_batch_holds_the_loop_or_fills_the_memory": ["headers *", "sound *"],
        "test_no_batch_holds_the_loop_before_the_kernels_are_loaded": ["sound records"],
    },
    "broker/test_quorum_against_kafka.py": {"*": []},
    "broker/test_quota_arithmetic_kafka.py": {"*": []},
    "broker/test_quotas_against_kafka.py": {"*": []},
    "broker/test_reassignment_against_kafka.py": {"*": []},
    "broker/test_reassignment_clients.py": {
        "test_transactions_are_exactly_once_while_partitions_and_coordinators_move": ["sqlite"],
        "test_a_producer_does_not_notice_that_partitions_move": ["postgresql"],
    },
    "broker/test_response_orders_against_kafka.py": {"*": []},
    "broker/test_restoration.py": {"*": []},
    "broker/test_restore.py": {
        "test_all_that_was_acknowledged_before_the_copy_is_served": ["sqlite"],
        "test_without_a_restore_numbers_are_given_twice": [],
    },
    "broker/test_return_to_kafka.py": {"*": []},
    "broker/test_sasl_against_kafka.py": {"*": []},
    "broker/test_secrets.py": {
        "test_nothing_shows_of_who_logs_in": [],
        "test_nothing_shows_to_the_doctor_nor_of_settings_that_are_wrong": [],
    },
    "broker/test_share_orders_against_kafka.py": {"*": []},
    "broker/test_shared_merging.py": {
        "test_a_trickle_ends_in_few_segments_that_all_can_read": ["sqlite"],
    },
    "broker/test_shares_against_kafka.py": {"*": []},
    "broker/test_signals.py": {"test_a_bad_file_changes_nothing": ["None*"]},
    "broker/test_simple_assignor_kafka.py": {"*": []},
    "broker/test_streams_command_against_kafka.py": {"*": []},
    "broker/test_streams_groups_against_kafka.py": {
        "test_members_that_come_and_go_are_served_as_by_kafka": ["[0-3]"],
    },
    "broker/test_tls_principals_against_kafka.py": {"*": []},
    "broker/test_tls_reload_against_kafka.py": {"*": []},
    "broker/test_tokens_against_kafka.py": {"*": []},
    "broker/test_transactional_offsets_kafka.py": {"*": []},
    "broker/test_turns.py": {"*": []},
    "broker/test_united.py": {"test_the_port_is_served_while_a_worker_is_away": []},
    "broker/test_united_sweep.py": {"*": []},
    "broker/test_web_sweep.py": {
        "test_stored_data_does_no_harm": [],
        "test_many_at_once_take_the_memory_of_some": [],
        "test_no_parameter_does_harm": ["GET-/api/*"],
        "test_every_route_is_swept": [],
    },
    "broker/test_worker_deaths.py": {
        "test_partitions_survive_workers_that_die_at_a_step_of_their_handover": ["after-commit"],
        "*": [],
    },
    "broker/test_workers.py": {
        "test_acknowledged_records_survive_workers_that_are_killed": ["0"],
        "test_a_supervisor_that_stood_still_goes_on": ALL,
        "test_a_worker_is_drained_and_gets_its_share_back": ALL,
        "test_a_partition_moves_to_another_worker_by_request": ALL,
        "*": [],
    },
    "cleaner/test_cleaner_against_kafka.py": {"test_histories_end_as_kafkas_do": ["plain"]},
    "cleaner/test_proof.py": {
        "test_a_batch_of_many_tiny_records_takes_no_more_than_its_bytes": [],
    },
    "cleaner/test_proof_old.py": {"*": []},
    "cleaner/test_random_histories.py": {
        "test_where_segments_begin_makes_no_difference_to_what_is_left": [],
        "test_readers_end_with_the_final_state_wherever_they_are": [],
    },
    "cleaner/test_soundness_kafka.py": {"*": []},
    "cleaner/test_spill.py": {"test_temporary_files_go_however_a_run_ends": ["7"]},
    "cli/test_acls.py": {"test_a_kafka_*": [], "*": ["OdradekProcess", ""]},
    "cli/test_administration.py": {"*": ["*odradek*", ""]},
    "cli/test_cluster.py": {
        "test_the_brokers_are_shown_with_the_partitions_that_they_lead": ["odradek"],
        "test_partitions_without_a_leader_are_counted": [],
    },
    "cli/test_cluster_moves.py": {"*": []},
    "cli/test_completion.py": {"*": ["odradek", ""]},
    "cli/test_doctor_as_serve.py": {
        "test_doctor_judges_as_serve_does": ["a new dir*", "a parent*", "*catalog*", "*port*"],
    },
    "cli/test_dump_log.py": {
        "test_our_files_are_shown_as_by_kafkas_tool": ["stopped", "cleaned"],
        "test_kafkas_files_are_shown_as_by_its_tool": [],
    },
    "cli/test_features.py": {"*": ["[!k]*", ""]},
    "cli/test_groups.py": {"*": ["odradek*", ""]},
    "cli/test_hostile_files.py": {"test_a_hostile_segment_is_dumped_within_bounds": ["two*text"]},
    "cli/test_image_environments.py": {
        "test_it_starts": ["apache/kafka", "cp-kafka"],
        "test_it_says_why_it_does_not": ["clients*"],
    },
    "cli/test_logdirs.py": {"*": ["[!k]*", ""]},
    "cli/test_one_line_errors.py": {
        "test_a_command_that_is_refused": ["busy port", "unknown host", "data*"],
        "test_trouble_that_a_broker_lives_with": ["unknown*", "torn*"],
    },
    "cli/test_perf.py": {"*": ["odradek", ""]},
    "cli/test_produce_consume.py": {
        "test_json_that_is_produced_is_consumed_the_same": [],
        "*": ["odradek", ""],
    },
    "cli/test_quotas.py": {"*": ["[!k]*", ""]},
    "cli/test_refused_logins.py": {"test_a_wrong_login_is_reported_in_one_line": ["password*"]},
    "cli/test_same_answers_against_kafka.py": {"*": []},
    "cli/test_share_groups.py": {"*": ["[!k]*", ""]},
    "cli/test_topics.py": {"*": ["odradek*", "[!k]*", ""]},
    "cli/test_transactions.py": {"*": ["[!k]*", ""]},
    "compat/test_client_logs.py": {"*": []},
    "compat/test_clients.py": {
        "test_a_client_sees_every_record_once_and_in_order": ["confluent*"],
    },
    "compat/test_group_storm.py": {"test_a_few_members_and_restarts": []},
    "compat/test_log_compaction_tester.py": {"*": []},
    "compat/test_performance_tools.py": {"*": []},
    "compat/test_tools.py": {"*": []},
    "differential/test_ranges_against_kafka.py": {"*": []},
    "differential/test_transactions_against_kafka.py": {
        "test_both_answer_alike_and_write_the_same": ["0"],
    },
    "differential/test_wire_against_kafka.py": {"test_every_api_at_every_version": []},
    "docs/test_commands.py": {"test_the_commands_of_a_page_do_what_it_says": ["README.md"]},
    "docs/test_site.py": {"test_a_browser_asks_nobody_else_and_finds_words": []},
    "fuzz/test_costs.py": {"test_a_search_finds_what_takes_the_square_of_some_bytes": []},
    "logins/test_logins.py": {"*": []},
    "model/test_model.py": {"test_all_promises_hold_in_all_states": ["[!l]*"]},
    "page/test_console.py": {
        "test_a_topic_is_created_altered_emptied_and_deleted": ALL,
        "test_everybody_can_use_actions": ["390*"],
        "test_a_late_refusal*": ALL,
        "test_a_filter_goes_on*": ALL,
        "test_a_user_logs_in*": ALL,
        "*": [],
    },
    "page/test_page.py": {
        "test_a_clean_run_appears_live": ALL,
        "test_everybody_can_use_it": ["390-dark"],
        "test_everybody_can_use_the_cluster": ["390-dark"],
        "test_names_from_others*": ALL,
        "*": [],
    },
    "page/test_schemas.py": {
        "test_records_have_their_data_beside_their_bytes": ALL,
        "test_the_page_shows_data_or_why_there_is_none": ["390"],
        "*": [],
    },
    "pipeline/test_audit.py": {
        "test_a_topic_that_nothing_befell_holds": [],
        "test_each_damage_is_found_with_its_key_and_nothing_else": [],
        "test_a_table_is_held_against_the_topic_that_it_was_kept_of": [],
    },
    "pipeline/test_clean.py": {
        "test_a_transaction_that_ends_while_a_job_runs": ALL,
        "*": [],
    },
    "pipeline/test_compacted_topic.py": {"*": []},
    "pipeline/test_errors_in_one_line.py": {"*": []},
    "pipeline/test_iceberg.py": {"*": []},
    "pipeline/test_keyed.py": {"*": []},
    "pipeline/test_latest_job.py": {"test_a_history*": ALL, "*": []},
    "pipeline/test_latest_transform.py": {"*": []},
    "pipeline/test_materialize.py": {
        "test_a_stream_catches_up_goes_on_and_keeps_headers_and_timestamps": ["delta"],
        "*": [],
    },
    "pipeline/test_plan.py": {"*": []},
    "pipeline/test_plan_against_cleaners.py": {"test_one_run_of_odradek_is_predicted": []},
    "pipeline/test_publish.py": {
        "test_each_row_becomes_a_record_in_the_partition_that_java_would_choose": ["json"],
        "*": [],
    },
    "pipeline/test_segment_stream.py": {"*": ["sqlite*", ""]},
    "pipeline/test_segments.py": {
        "test_the_command_reports_a_missing_path_before_spark_starts": ALL,
        "*": [],
    },
    "pipeline/test_shared_segments.py": {
        "test_the_snapshot_has_what_consumers_read": ["postgresql-small", "sqlite-usual"],
        "*": ["sqlite*", ""],
    },
    "pipeline/test_shared_segments_spark.py": {
        "test_the_bucket_holds_what_the_brokers_serve": ["read_committed"],
        "*": [],
    },
    "pipeline/test_source_against_kafka.py": {
        "test_a_stream_to_the_end_has_the_same_batches": [],
        "test_a_stream_goes_on_after_tails_that_nobody_sees": [],
        "test_a_pattern_finds_topics_and_partitions_while_a_stream_runs": [],
        "test_a_batch_is_the_same": ["every record", "committed", "offsets*"],
    },
    "pipeline/test_ticket_service.py": {"*": []},
    "protocol/test_footprint.py": {"test_no_array_takes_more_than_it_is_charged_for": ["[A-C]*"]},
    "protocol/test_independent_codecs.py": {
        "test_both_read_and_write_the_same_bytes": ["*Request-v[0258]"],
    },
    "protocol/test_messages.py": {
        "test_a_huge_count_or_length_allocates_nothing_like_it": ["*Request"],
    },
    "schemas/test_registry_on_odradek.py": {"*": []},
    "simulation/test_clusters.py": {
        "test_a_cluster_keeps_its_promises": ["[379]"],
        "test_a_mistake_is_found": ["serve_without*", "forget_s*", "take_copies*", "replay*"],
    },
    "simulation/test_crash_points.py": {
        "test_a_recovery": ["0"],
        "test_the_repair*": [],
        "test_a_cleaning_of_what*": [],
    },
    "simulation/test_scripts.py": {
        "test_a_crash_at_every_operation_of_a_script": ["2-10", "4-12"],
    },
    "simulation/test_shrink.py": {"test_a_failing*": []},
    "simulation/test_shared.py": {
        "test_shared_topics_keep_their_promises": ["[125]"],
        "test_a_mistake_is_found": [
            "acknowledge*", "forget_producers", "show*", "misplace*", "trim*",
        ],
    },
    "storage/test_descriptors.py": {
        "test_files_may_be_forgotten_at_any_step_of_an_opening": ["1"],
    },
    "storage/test_dump_log_segments.py": {"*": []},
    "storage/test_file_systems.py": {"test_more_files_than_descriptors": []},
    "storage/test_old_formats.py": {
        "test_a_torn_last_message_is_cut_off": ["none*"],
        "test_kafkas*": [],
    },
    "storage/test_transactions_kafka.py": {"*": []},
    "test_compose.py": {"test_brokers_with_the_environments_of_the_cluster_are_one": ["object"]},
    "test_debian.py": {"test_the_package*": []},
    "test_distribution.py": {"test_the_wheel*": ALL, "*": []},
    "test_makefile.py": {"test_make_check_needs_no_more_than_the_development_packages": []},
    "testing/test_broker.py": {
        "test_two_brokers*": [],
        "test_a_broker_that_starts_again_has_its_data_at_its_address": ["kill"],
        "test_a_broker_that_somebody_else_stops*": [],
    },
    "testing/test_plugin.py": {
        "test_tests_share_a_broker*": ALL,
        "test_a_broker_that_cannot_start*": ALL,
        "test_a_run_without*": ALL,
        "*": [],
    },
}


def is_long(node_id: str) -> bool:
    """Return whether `make test` leaves out a test: "tests/page/test_page.py::test_it[dark]"."""
    file, _, test = node_id.partition("::")
    name, _, parameter = test.rpartition("::")[2].partition("[")
    for pattern, kept in LONG_FORMS.get(file.removeprefix("tests/"), {}).items():
        if fnmatchcase(name, pattern):
            return not any(fnmatchcase(parameter[:-1], one) for one in kept)
    return False
