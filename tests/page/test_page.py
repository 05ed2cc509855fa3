"""The web page as a person uses it, in a real browser against a real broker."""

from __future__ import annotations

import json
import re
import sqlite3
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Page, expect

from bench.browser import unlock
from odradek.broker.metadata.store import ResourceType
from tests.broker.moved_cluster import alter
from tests.broker.test_workers import leaders
from tests.page.conftest import Both, Service
from tests.support.forking import fork_server

pytestmark = pytest.mark.slow

BROKERS = "Brokers, and the partitions that each leads"


def clean(service: Service, *arguments: str) -> None:
    """Have it clean by the command line, which finds the token by itself."""
    fork_server().run(["cleaner", "run", *arguments, "--url", service.http]).check_returncode()


def open_at(page: Page, path: str, heading: str) -> None:
    page.goto(f"/#/{path}")
    expect_live(page, heading)


def expect_live(page: Page, heading: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()


def many(count: int = 200, keys: int = 5) -> list[tuple[str, str | None]]:
    return [(f"p{at % keys}", f"value {at}") for at in range(count)]


def test_a_clean_run_appears_live(service: Service, page: Page) -> None:
    service.create("prices")
    service.produce("prices", *many())
    open_at(page, "topic/prices", "prices")
    bar = page.get_by_role("row").filter(has=page.get_by_role("cell")).locator(".bytes")
    expect(bar.locator(".dirty")).to_be_visible()
    assert "clean" not in (bar.get_attribute("aria-label") or "")
    clean(service, "prices")
    # Nothing is loaded again: the page hears of it.
    expect(bar.locator(".clean")).to_be_visible()
    expect(bar.locator(".dirty")).to_have_count(0)

    open_at(page, "cleaner", "Cleaner")
    runs = page.get_by_role("region", name="Runs, the latest first").get_by_role("row")
    expect(runs).to_have_count(2)
    expect(runs.nth(1)).to_contain_text("asked for")
    service.produce("prices", *many())
    clean(service, "prices")
    expect(runs).to_have_count(3)


def test_cleaning_takes_the_token(service: Service, page: Page) -> None:
    service.create("prices")
    service.produce("prices", *many())
    open_at(page, "topic/prices", "prices")
    button = page.get_by_role("button", name="Clean partition 0 now")
    button.click()
    unlock(page, "wrong")
    expect(page.locator("#toast")).to_contain_text("admin token")
    assert runs_of(service) == []
    unlock(page, service.token)
    button.click()
    expect(page.locator("#toast")).to_contain_text("Asked the cleaner for prices 0")
    expect(page.locator(".bytes .clean")).to_be_visible()
    page.get_by_role("button", name="Lock actions").click()
    button.click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert len(runs_of(service)) == 1


def test_a_restart_takes_the_new_token(service: Service, page: Page) -> None:
    service.create("prices")
    service.produce("prices", *many())
    open_at(page, "topic/prices", "prices")
    button = page.get_by_role("button", name="Clean partition 0 now")
    page.get_by_role("button", name="Unlock actions").click()
    former = service.token
    unlock(page, former)
    expect(page.get_by_role("button", name="Lock actions")).to_be_visible()
    service.stop()
    expect(page.locator("#link")).to_have_text("no answer")
    service.start()
    expect(page.locator("#link")).to_have_text("live")
    assert service.token != former
    button.click()
    expect(page.locator("#toast")).to_contain_text("this is not the admin token")
    assert runs_of(service) == []
    unlock(page, service.token)
    button.click()
    expect(page.locator("#toast")).to_contain_text("Asked the cleaner for prices 0")


@pytest.mark.parametrize(
    "service", [{"odradek.http.read.token": "look-only-17"}], indirect=True
)
def test_where_reading_takes_a_token_it_is_asked_for(service: Service, page: Page) -> None:
    service.create("prices")
    service.produce("prices", *many())
    page.goto("/#/topics")
    expect(page.get_by_role("heading", level=1)).to_have_text("This cannot be shown")
    expect(page.get_by_role("main")).to_contain_text("this needs a token")
    assert page.get_by_role("link", name="prices").count() == 0
    page.get_by_role("button", name="Enter a token").click()
    unlock(page, "wrong")
    expect(page.get_by_role("main")).to_contain_text("this is not a token")
    expect(page.get_by_role("button", name="Unlock actions")).to_be_visible()
    page.get_by_role("button", name="Enter a token").click()
    unlock(page, "look-only-17")
    expect_live(page, "Topics")
    page.get_by_role("link", name="prices").click()
    # Looking is all that it allows.
    page.get_by_role("button", name="Clean partition 0 now").click()
    expect(page.locator("#toast")).to_contain_text("this is not the admin token")
    unlock(page, service.token)
    page.get_by_role("button", name="Clean partition 0 now").click()
    expect(page.locator(".bytes .clean")).to_be_visible()
    assert "look-only-17" not in page.url and service.token not in page.url


def runs_of(service: Service) -> list[object]:
    with urllib.request.urlopen(f"{service.http}/api/cleaner/runs", timeout=60) as answer:
        found = json.load(answer)["runs"]
        assert isinstance(found, list)
        return found


def test_a_quarantined_partition_shows_and_is_retried(service: Service, page: Page) -> None:
    service.create("prices")
    service.produce("prices", *many())
    damaged = service.data / "prices-0" / "00000000000000000000.log"
    intact = damaged.read_bytes()
    damaged.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
    open_at(page, "cleaner", "Cleaner")
    failed = page.get_by_role("region", name="Partitions whose last cleaning failed")
    expect(failed).to_contain_text("None")
    page.evaluate(  # as another tab would
        """([path, token]) => fetch(path, {method: "POST", headers: {Authorization: token}})""",
        ["/api/cleaner/run?topic=prices&wait=false", f"Bearer {service.token}"],
    )
    row = failed.get_by_role("row").filter(has_text="prices")
    expect(row).to_contain_text("CRC")
    expect(page.get_by_role("alert")).to_contain_text("prices-0 cannot be cleaned")

    damaged.write_bytes(intact)
    row.get_by_role("button", name="Retry prices 0").click()
    unlock(page, service.token)
    expect(failed).to_contain_text("None")
    expect(page.get_by_role("region", name="Runs, the latest first")).to_contain_text("cleaned")
    # The disk's refusal itself stays in sight for half a minute.
    expect(page.get_by_role("alert")).not_to_contain_text("cannot be cleaned")


def test_the_search_finds_a_key(service: Service, page: Page) -> None:
    service.create("prices", partitions=2)
    service.produce("prices", *many(120, keys=60), ("p7", '{"price": 11}'), ("p8", None))
    open_at(page, "topic/prices/latest", "prices")
    page.get_by_role("searchbox", name="Search keys").fill("p7")
    page.get_by_role("button", name="Show").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text('{"price": 11}')
    page.get_by_role("searchbox", name="Search keys").fill("p8")
    page.get_by_role("searchbox", name="Search keys").press("Enter")
    expect(rows).to_contain_text("tombstone")

    page.get_by_role("link", name="Records").click()
    search = page.get_by_role("searchbox", name="Search keys and values")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Older records").click()
    expect(rows).to_have_count(100)
    search.fill("value 77")
    search.press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("p17")


def test_the_page_says_how_much_of_a_record_is_cut(service: Service, page: Page) -> None:
    service.create("prices", internal_segment_bytes="1000000")
    producer = Producer({"bootstrap.servers": service.bootstrap, "log_level": 0})
    headers = [("n" * 5_000, b"w" * 5_000), *((f"h{at}", b"1") for at in range(120))]
    producer.produce("prices", "v" * 5_000, "k", headers=headers)
    assert producer.flush(20) == 0
    open_at(page, "topic/prices/records", "prices")
    page.locator("tbody summary").click()
    row = page.locator("tbody tr")
    expect(row).to_contain_text("n…: w")
    expect(row).to_contain_text("w…, h0: 1,")
    expect(row).to_contain_text("h98: 1, 21 more")
    expect(row).to_contain_text("The first 4.1 kB of 5.0 kB.")


def test_a_group_s_lag_goes_down_as_it_reads(service: Service, page: Page) -> None:
    service.create("prices")
    service.produce("prices", *many(30))
    settings = {
        "bootstrap.servers": service.bootstrap, "group.id": "billing", "log_level": 0,
        "enable.auto.commit": False, "client.id": "till",
    }  # fmt: skip
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition("prices", 0, 0)])
        consumer.commit(offsets=[TopicPartition("prices", 0, 10)], asynchronous=False)
        open_at(page, "groups", "Groups")
        expect(page.get_by_role("row").filter(has_text="billing")).to_contain_text("20")
        page.get_by_role("link", name="billing").click()
        row = page.get_by_role("row").filter(has_text="prices")
        expect(row).to_contain_text("20")
        consumer.commit(offsets=[TopicPartition("prices", 0, 30)], asynchronous=False)
        expect(row.get_by_role("cell").nth(4)).to_have_text("0")
    finally:
        consumer.close()


def test_the_page_says_that_a_topic_is_missing(service: Service, page: Page) -> None:
    page.goto("/#/topic/price")
    expect(page.get_by_role("heading", level=1)).to_have_text("This cannot be shown")
    expect(page.get_by_role("main")).to_contain_text("there is no topic price")
    page.goto("/#/topics")
    expect(page.get_by_role("main")).to_contain_text("There is no topic yet")


def test_names_from_others_are_text_and_nothing_else(service: Service, page: Page) -> None:
    service.create("prices")
    evil = "<img src=x onerror=document.title='caught'>"
    service.produce("prices", (evil, evil), ("json", json.dumps({evil: evil})))
    open_at(page, "topic/prices/records", "prices")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_role("main")).to_contain_text(evil)
    assert page.locator("tbody img").count() == 0
    assert "caught" not in page.title()


def test_the_broker_s_end_and_return_are_seen(service: Service, page: Page) -> None:
    service.create("prices")
    open_at(page, "topics", "Topics")
    light = page.locator("#link")
    service.stop()
    expect(light).to_have_text("no answer")
    service.start()
    service.create("clicks")
    expect(light).to_have_text("live")
    expect(page.get_by_role("link", name="clicks")).to_be_visible()


def test_the_keyboard_is_enough(service: Service, page: Page) -> None:
    service.create("prices")
    service.produce("prices", *many())
    open_at(page, "", "Overview")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    page.get_by_role("link", name="prices").press("Enter")
    button = page.get_by_role("button", name="Clean partition 0 now")
    with page.expect_response(lambda answer: "/api/topic?" in answer.url):
        button.focus()
    expect(button).to_be_focused()  # though the row was shown again
    button.press("Enter")
    page.keyboard.type(service.token)
    page.keyboard.press("Enter")
    expect(page.locator(".bytes .clean")).to_be_visible()


def test_the_cluster_shows_that_a_broker_goes_and_comes_back(
    first: Service, second: Service, cluster_page: Page
) -> None:
    page = cluster_page
    first.create("prices", partitions=4)
    open_at(page, "", "Overview")
    page.get_by_role("link", name="Cluster").click()
    expect_live(page, "Cluster")
    rows = page.get_by_role("region", name=BROKERS).get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text(f"PLAINTEXT://{first.bootstrap}")
    expect(rows.nth(2)).to_contain_text("alive")
    expect(rows.nth(2)).to_contain_text(f"PLAINTEXT://{second.bootstrap}")
    expect(rows.nth(2)).to_contain_text("cellar")
    expect(rows.nth(2).get_by_role("img")).to_have_accessible_name(
        "leads 2 partitions, 0 without a leader"
    )
    lost = page.get_by_role("region", name="Partitions without a leader")
    expect(lost).to_contain_text("each partition has a leader")
    expect(page.get_by_role("main")).to_contain_text("serving")
    second.stop()
    expect(rows.nth(2)).to_contain_text("away")
    expect(rows.nth(2).get_by_role("img")).to_have_accessible_name(
        "leads 0 partitions, 2 without a leader"
    )
    expect(lost.get_by_role("row")).to_have_count(3)
    expect(lost.get_by_role("row").nth(1)).to_contain_text("broker 2")
    second.start()
    expect(rows.nth(2)).to_contain_text("alive")
    expect(lost).to_contain_text("each partition has a leader")


def test_the_cluster_shows_that_the_catalog_cannot_be_used(
    first: Service, cluster_page: Page, clustered: Mapping[str, str]
) -> None:
    page = cluster_page
    open_at(page, "cluster", "Cluster")
    own = page.get_by_role("main").filter(has_text="The session of this broker")
    expect(own).to_contain_text("serving")
    path = clustered["odradek.catalog.url"].removeprefix("sqlite://")
    with closing(sqlite3.connect(path)) as file:
        file.execute("BEGIN IMMEDIATE")  # no lease can be extended meanwhile
        expect(own).to_contain_text("cannot be used: database is locked")
        expect(page.get_by_role("alert")).to_contain_text("database is locked")
        expect_usable(page, "cluster")
    expect(own).not_to_contain_text("cannot be used")
    expect(own).to_contain_text("serving")


def test_the_cluster_shows_the_partitions_that_move(
    first: Service, second: Service, cluster_page: Page
) -> None:
    page = cluster_page
    first.create("prices", partitions=2, follower_replication_throttled_replicas="*")
    first.produce("prices", *many(10))
    rate = "follower.replication.throttled.rate"
    alter(second.bootstrap, ResourceType.BROKER, "2", {rate: "1"})
    open_at(page, "cluster", "Cluster")
    expect(page.get_by_role("region", name=BROKERS).get_by_role("row")).to_have_count(3)
    moving = page.get_by_role("region", name="Partitions on their way to another broker")
    expect(moving).to_be_hidden()
    fork_server().run(["cluster", "drain", "1", "--url", first.http]).check_returncode()
    expect(moving.get_by_role("row")).to_have_count(2)
    cells = moving.get_by_role("row").nth(1).get_by_role("cell")
    expect(cells.nth(0)).to_contain_text("prices")
    expect(cells.nth(1)).to_have_text("1 to 2")
    expect_usable(page, "cluster")
    alter(second.bootstrap, ResourceType.BROKER, "2", {rate: "1000000"})
    expect(moving).to_be_hidden()
    rows = page.get_by_role("region", name=BROKERS).get_by_role("row")
    expect(rows.nth(2).get_by_role("img")).to_have_accessible_name(
        "leads 2 partitions, 0 without a leader"
    )


def test_a_broker_without_a_catalog_has_no_link_to_a_cluster(
    service: Service, page: Page
) -> None:
    open_at(page, "", "Overview")
    expect(page.get_by_role("link", name="Groups")).to_be_visible()
    expect(page.get_by_role("link", name="Cluster")).to_have_count(0)
    open_at(page, "cluster", "Cluster")
    expect(page.get_by_role("main")).to_contain_text("it is alone")
    expect(page.get_by_role("region", name=BROKERS).get_by_role("row")).to_have_count(2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everybody_can_use_it(service: Service, page: Page, scheme: str, width: int) -> None:
    """Hold every view against WCAG 2 as axe-core judges it: names, roles, contrast, order."""
    service.create("prices", partitions=2)
    service.create("clicks", cleanup_policy="delete")
    service.produce("prices", *many(300), ("p1", None), ("p2", '{"price": 11, "more": [1, 2]}'))
    service.produce("clicks", *many(20))
    clean(service, "prices", "--partition", "0")
    consumer = Consumer({"bootstrap.servers": service.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("prices", 0, 10)], asynchronous=False)
    consumer.close()
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 900})
    views = {
        "": "Overview", "topics": "Topics", "cleaner": "Cleaner", "groups": "Groups",
        "topic/prices": "prices", "topic/prices/records": "prices",
        "topic/prices/latest": "prices", "group/billing": "billing",
    }  # fmt: skip
    for path, heading in views.items():
        open_at_any_width(page, path, heading)
        expect_usable(page, path)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 900, 390])
def test_everybody_can_use_the_cluster(
    first: Service, second: Service, cluster_page: Page, scheme: str, width: int
) -> None:
    first.create("prices", partitions=9)
    second.stop()
    cluster_page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    cluster_page.set_viewport_size({"width": width, "height": 900})
    open_at_any_width(cluster_page, "cluster", "Cluster")
    expect(cluster_page.get_by_role("region", name=BROKERS)).to_contain_text("away")
    expect(cluster_page.get_by_role("link", name="Cluster")).to_be_visible()
    expect_usable(cluster_page, "cluster")


def expect_usable(page: Page, path: str) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, f"{path}: {found.generate_report()}"
    overflow = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0, f"{path} is wider than the window"


def open_at_any_width(page: Page, path: str, heading: str) -> None:
    page.goto(f"/#/{path}")
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    page.wait_for_load_state("domcontentloaded")


def test_one_page_shows_the_partitions_of_all_workers(both: Both, workers_page: Page) -> None:
    page = workers_page
    both.create("prices", partitions=2)
    both.produce("prices", *many(120, keys=60))
    assert set(leaders(both, "prices").values()) == {1, 2}
    open_at(page, "topic/prices", "prices")
    expect(page.locator("tbody .bytes")).to_have_count(2)
    page.goto("/#/cleaner")
    expect_live(page, "Cleaner")
    clean(both, "prices")
    # Nothing is loaded again: the page hears of the runs of both.
    runs = page.get_by_role("region", name="Runs, the latest first")
    for number in range(2):
        expect(runs.get_by_role("row").filter(has_text=f"prices {number}")).to_have_count(1)
    open_at(page, "topic/prices/latest", "prices")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    for number in range(2):
        address = f"{both.http}/api/latest?topic=prices&partition={number}"
        records = json.load(urllib.request.urlopen(address))["records"]
        # No other key contains one of two digits.
        key = next(one["key"]["text"] for one in records if len(one["key"]["text"]) == len("p10"))
        search = page.get_by_role("searchbox", name="Search keys")
        search.fill(key)
        search.press("Enter")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text(key)
        expect(rows.get_by_role("cell").nth(2)).to_have_text(str(number))


def test_the_overview_has_no_object_store_where_there_is_none(
    service: Service, page: Page
) -> None:
    open_at(page, "", "Overview")
    expect(page.get_by_role("heading", name="Last runs")).to_be_visible()
    expect(page.get_by_role("heading", name="Object store")).to_have_count(0)


def test_the_overview_shows_the_object_store_and_that_it_fails(
    sharing: Service, sharing_page: Page, bucket: Path
) -> None:
    page = sharing_page
    sharing.create("prices", cleanup_policy="delete")
    sharing.produce("prices", *many(20))
    open_at(page, "", "Overview")
    heading = page.get_by_role("heading", name="Object store")
    card = page.locator("section.card").filter(has=heading)
    state = card.locator(".tag")
    expect(state).to_have_text("works")
    expect(card).to_contain_text(bucket.as_uri())
    wal = card.get_by_role("row").filter(has=page.get_by_role("cell", name="WAL", exact=True))
    expect(wal.get_by_role("cell").nth(2)).not_to_have_text("0")
    expect(wal.get_by_role("cell").nth(3)).to_have_text("0")
    expect(card.locator(".tile").filter(has_text="Costs a month")).to_contain_text("$")
    # A file where a folder should be.
    (bucket / "wal").rename(bucket / "moved")
    (bucket / "wal").write_text("")
    producer = Producer({"bootstrap.servers": sharing.bootstrap, "log_level": 0})
    producer.produce("prices", "x")
    producer.poll(0)
    expect(state).to_have_text("fails")
    expect(card.locator(".trouble")).to_contain_text("check the folder")
    expect(wal.get_by_role("cell").nth(3)).not_to_have_text("0")
    expect(page.locator("#problems")).to_contain_text("shared partitions take no records")
    (bucket / "wal").unlink()
    assert producer.flush(20) == 0
    expect(state).to_have_text("works")
    expect(card).to_contain_text("Last error")


def test_a_shared_topic_shows_its_levels_and_the_requests_of_its_runs(
    sharing: Service, sharing_page: Page
) -> None:
    page = sharing_page
    sharing.create("prices")
    sharing.produce("prices", *many())
    open_at(page, "topic/prices", "prices")
    cell = page.get_by_role("row").nth(1).get_by_role("cell").nth(4)
    levels = r"L0 [\d.]+ k?B, L1 [\d.]+ k?B in \d+ objects?, L2 0 B in 0 objects"
    expect(cell).to_contain_text(re.compile(levels))
    clean(sharing, "prices")
    expect(cell).to_contain_text(re.compile(r"L2 [\d.]+ k?B in [1-9]\d* objects?"))
    for view, heading in (("cleaner", "Cleaner"), ("", "Overview")):
        open_at(page, view, heading)
        run = page.get_by_role("row").filter(has_text="asked for")
        expect(run).to_contain_text(re.compile(r"[1-9]\d* PUTs?, \d+ GETs?, \$0\.0"))


def test_a_local_topic_shows_nothing_of_an_object_store(service: Service, page: Page) -> None:
    service.create("prices")
    service.produce("prices", *many())
    clean(service, "prices")
    for path, heading in (("topic/prices", "prices"), ("cleaner", "Cleaner"), ("", "Overview")):
        open_at(page, path, heading)
        expect(page.get_by_role("row").nth(1)).to_be_visible()
        for text in ("object store", "L0"):
            expect(page.get_by_text(text).filter(visible=True)).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everybody_can_use_the_object_store(
    sharing: Service, sharing_page: Page, scheme: str, width: int
) -> None:
    sharing.create("prices", cleanup_policy="delete")
    sharing.produce("prices", *many(20))
    sharing_page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    sharing_page.set_viewport_size({"width": width, "height": 900})
    open_at_any_width(sharing_page, "", "Overview")
    expect(sharing_page.get_by_role("heading", name="Object store")).to_be_visible()
    expect_usable(sharing_page, "the object store")
    sharing.create("carts")
    sharing.produce("carts", *many(20))
    open_at_any_width(sharing_page, "topic/carts", "carts")
    expect_usable(sharing_page, "a shared topic")
