"""The commonest tasks of an operator on the page, in a real browser, without any guide."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from playwright.sync_api import Browser, Locator, Page, Route, expect

from bench.browser import unlock
from bench.processes import free_port
from tests.page.conftest import IDLE, Service
from tests.page.test_page import expect_live, expect_usable, open_at

pytestmark = pytest.mark.slow

SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def unlocked(service: Service, page: Page) -> Iterator[Page]:
    """A tab whose actions are unlocked."""
    page.goto("/#/topics")
    page.get_by_role("button", name="Unlock actions").click()
    unlock(page, service.token)
    expect_live(page, "Topics")
    yield page


def dialog(page: Page, title: str) -> Locator:
    return page.get_by_role("dialog", name=title)


def fill_in(page: Page, title: str, values: Mapping[str, str], **choices: str) -> None:
    """Fill in the form of an action, and go on."""
    shown = dialog(page, title)
    for label, value in values.items():
        shown.get_by_role("textbox", name=label, exact=True).or_(
            shown.get_by_role("spinbutton", name=label)
        ).or_(shown.get_by_role("combobox", name=label, exact=True)).fill(value)
    for label, value in choices.items():
        shown.get_by_role("combobox", name=label).select_option(value)
    shown.get_by_role("button", name="Go on").click()


def confirm(page: Page, *sentences: str, by: str = "Do it") -> None:
    """Read what will be done, and confirm it."""
    shown = dialog(page, "This will be done")
    for one in sentences:
        expect(shown).to_contain_text(one)
    shown.get_by_role("button", name=by).click()
    expect(shown).to_have_count(0)


def ask(service: Service, path: str) -> Any:
    request = urllib.request.Request(
        f"{service.http}{path}", headers={"Authorization": f"Bearer {service.token}"}
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def topics(service: Service) -> Mapping[str, int]:
    """Return the numbers of partitions by topic, as a client sees them."""
    admin = AdminClient({"bootstrap.servers": service.bootstrap, "log_level": 0})
    found = admin.list_topics(timeout=20).topics
    return {name: len(one.partitions) for name, one in found.items() if name[:2] != "__"}


def test_a_topic_is_created_altered_emptied_and_deleted(service: Service, unlocked: Page) -> None:
    page = unlocked
    open_at(page, "topics", "Topics")
    page.get_by_role("button", name="Create topic").click()
    values = {"Name": "prices", "Partitions": "2", "More settings": "retention.ms"}
    fill_in(page, "Create a topic", values)
    form = dialog(page, "Create a topic")
    expect(form.get_by_role("alert")).to_contain_text("is not of the form name=value")
    values["More settings"] = "retention.ms=x"
    fill_in(page, "Create a topic", values)
    expect(form.get_by_role("alert")).to_contain_text("Invalid value x")
    # The form kept all that was typed.
    expect(form.get_by_label("Name")).to_have_value("prices")
    fill_in(page, "Create a topic", {"More settings": "retention.ms=9000000"})
    assert topics(service) == {}
    confirm(page, "Create topic prices with 2 partitions.", "Set retention.ms to 9000000.")
    expect(page.get_by_role("heading", level=1)).to_have_text("prices")
    assert topics(service) == {"prices": 2}

    page.get_by_role("button", name="Write a record").click()
    fill_in(page, "Write a record to prices", {"Key": "p3", "Value": '{"price": 11}'})
    confirm(page, "Write a record of 13 bytes")
    expect(page.locator("#toast")).to_contain_text("at offset 0")
    page.get_by_role("link", name="Records").click()
    expect(page.get_by_role("cell", name="p3")).to_be_visible()

    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Change retention.ms").click()
    fill_in(page, "Change retention.ms", {"Value": "8000000"})
    confirm(page, "it is 9000000 now")
    row = page.get_by_role("row").filter(has_text="retention.ms")
    expect(row.filter(has_text="8000000")).to_be_visible()
    page.get_by_role("button", name="Remove retention.ms").click()
    confirm(page, "Remove retention.ms, which is 8000000 now.")
    expect(row.filter(has_text="604800000")).to_be_visible()

    page.get_by_role("button", name="Add partitions").click()
    fill_in(page, "Add partitions to prices", {"Partitions in all": "3"})
    confirm(page, "Add 1 partition", "may go to another partition")
    expect(page.get_by_text("3 partitions, ")).to_be_visible()
    assert topics(service) == {"prices": 3}

    page.get_by_role("button", name="Empty").click()
    fill_in(page, "Delete records of prices", {})
    confirm(page, "Delete the records at 1 offset", by="Delete the records")
    page.get_by_role("link", name="Records").click()
    expect(page.get_by_text("No record matches.")).to_be_visible()

    page.get_by_role("button", name="Delete topic").click()
    certain = dialog(page, "This will be done")
    button = certain.get_by_role("button", name="Delete the topic")
    expect(button).to_be_disabled()
    certain.get_by_label("Type prices to confirm").fill("price")
    expect(button).to_be_disabled()
    certain.get_by_label("Type prices to confirm").fill("prices")
    button.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    assert topics(service) == {}


def test_the_offsets_of_a_group_are_moved_and_deleted(service: Service, unlocked: Page) -> None:
    page = unlocked
    service.create("prices", cleanup_policy="delete")
    service.produce("prices", *((f"p{at}", "v") for at in range(5)))
    consumer = Consumer({"bootstrap.servers": service.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("prices", 0, 4)], asynchronous=False)
    open_at(page, "group/billing", "billing")
    page.get_by_role("button", name="Move offsets").click()
    fill_in(page, "Move the offsets of billing", {"To": "some day"})
    expect(dialog(page, "Move the offsets").get_by_role("alert")).to_contain_text("some day")
    fill_in(page, "Move the offsets of billing", {"To": "2"})
    preview = dialog(page, "This will be done").get_by_role("region", name="Changes")
    expect(preview.get_by_role("row").nth(1)).to_have_text("prices042")
    confirm(page)
    committed = consumer.committed([TopicPartition("prices", 0)], timeout=20)
    assert committed[0].offset == 2
    page.get_by_role("button", name="Move offsets").click()
    fill_in(page, "Move the offsets of billing", {"To": "2001-01-01"})
    confirm(page, "to @978307200000")
    read = page.get_by_role("row").filter(has_text="prices").get_by_role("cell").nth(2)
    expect(read).to_have_text("0")
    page.get_by_role("button", name="Delete group").click()
    confirm(page, "Delete group billing", by="Delete the group")
    expect(page.get_by_text("No group has read anything yet.")).to_be_visible()
    consumer.close()


@pytest.mark.parametrize("service", [SECURED], indirect=True)
def test_rights_users_and_quotas_are_given_and_taken(service: Service, unlocked: Page) -> None:
    page = unlocked
    open_at(page, "access", "Access")
    page.get_by_role("button", name="Add entry").click()
    fill_in(page, "Add an entry", {"Principal": "ann", "Name": "prices"})
    expect(dialog(page, "Add an entry").get_by_role("alert")).to_contain_text("write User:ann")
    fill_in(page, "Add an entry", {"Principal": "User:ann"}, Operation="WRITE")
    confirm(page, "User:ann may WRITE on topic prices")
    (entry,) = ask(service, "/api/acls")["acls"]
    assert entry["principal"] == "User:ann" and entry["operation"] == "WRITE"
    page.get_by_role("button", name="Add user").click()
    form = dialog(page, "Create a user")
    form.get_by_label("User").fill("ann")
    form.get_by_label("Password").fill("a secret")
    form.get_by_role("button", name="Go on").click()
    confirm(page, "Create user ann")
    page.get_by_role("button", name="Set quota").click()
    fill_in(page, "Set a quota", {"Name": "ann", "Value": "1000"})
    confirm(page, "Set producer_byte_rate of user ann to 1,000.")
    for name in (
        "Delete the entry of User:ann for topic prices", "Delete user ann",
        "Delete producer_byte_rate of user ann",
    ):  # fmt: skip
        page.get_by_role("button", name=name).click()
        confirm(page)
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    for kind in ("acls", "users", "quotas"):
        assert ask(service, f"/api/{kind}") == {kind: []}


def test_a_transaction_that_hangs_is_found_and_aborted(service: Service, unlocked: Page) -> None:
    page = unlocked
    service.create("prices")
    producer = Producer({"bootstrap.servers": service.bootstrap, "transactional.id": "pay"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("prices", "v", "k")
    assert producer.flush(20) == 0
    open_at(page, "topic/prices/producers", "prices")
    expect(page.get_by_role("button", name="Abort the transaction of producer")).to_be_visible()
    open_at(page, "transactions", "Transactions")
    page.get_by_role("button", name="Abort the transaction of pay").click()
    confirm(page, "Abort the transaction of pay in 1 partition.", by="Abort it")
    expect(page.get_by_role("cell", name="CompleteAbort")).to_be_visible()
    expect(page.get_by_role("button", name="Abort the transaction of pay")).to_be_hidden()
    del producer


def test_an_action_asks_for_the_token_first(service: Service, page: Page) -> None:
    open_at(page, "topics", "Topics")
    page.get_by_role("button", name="Create topic").click()
    unlock(page, "a-wrong-token")
    fill_in(page, "Create a topic", {"Name": "prices"})
    expect(page.get_by_role("dialog", name="Admin token")).to_be_visible()
    unlock(page, service.token)
    fill_in(page, "Create a topic", {})
    confirm(page, "Create topic prices")
    expect(page.get_by_role("heading", level=1)).to_have_text("prices")


def test_an_unknown_address_says_so(service: Service, page: Page) -> None:
    open_at(page, "no/such/view", "There is no such page")
    page.get_by_role("link", name="Go to the overview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


@pytest.mark.parametrize("service", [SECURED], indirect=True)
@pytest.mark.parametrize("width", [1280, 900, 390])
def test_everybody_can_use_actions(service: Service, unlocked: Page, width: int) -> None:
    page = unlocked
    service.create("prices", partitions=2)
    service.produce("prices", ("p1", "v"))
    page.set_viewport_size({"width": width, "height": 900})
    for path in ("access", "transactions", "topic/prices/settings", "topic/prices/producers"):
        page.goto(f"/#/{path}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect_usable(page, path)
    page.get_by_role("button", name="Empty").click()
    expect_usable(page, "a form")


@pytest.mark.parametrize("service", [SECURED], indirect=True)
def test_a_late_refusal_of_no_token_does_not_discard_the_token_that_was_entered_meanwhile(
    service: Service, page: Page
) -> None:
    held: list[Route] = []
    page.route("**/api/events", lambda route: held.append(route), times=1)
    with page.expect_request("**/api/events"):
        page.goto("/#/topics")
    page.get_by_role("button", name="Unlock actions").click()
    unlock(page, service.token)
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    with page.expect_response("**/api/events"):
        held[0].continue_()
    expect_live(page, "Topics")
    expect(page.get_by_role("button", name="Lock actions")).to_be_visible()


@pytest.mark.parametrize("service", [SECURED], indirect=True)
def test_a_page_that_needs_a_token_stays_as_it_is_until_there_is_one(
    service: Service, page: Page
) -> None:
    page.goto("/#/topics")
    button = page.get_by_role("button", name="Enter a token")
    button.focus()
    for _ in range(2):  # it asks again by itself
        with page.expect_response("**/api/events"):
            pass
    expect(button).to_be_focused()


def test_records_are_filtered_by_an_expression(service: Service, page: Page) -> None:
    pytest.importorskip("cel_expr_python", reason="needs the extra console")
    service.create("prices", cleanup_policy="delete")
    values = [f'{{"at": {at}}}' if at % 4 else "text" for at in range(40)]
    service.produce("prices", *((f"p{at % 2}", value) for at, value in enumerate(values)))
    open_at(page, "topic/prices/records", "prices")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(40)
    expression = page.get_by_role("textbox", name="Filter by an expression")
    expression.fill('value.at > 30 && key == "p1"')
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(5)
    status = page.get_by_role("status").filter(has_text="shown")
    expect(status).to_contain_text("5 shown")
    expression.fill("value.at >")
    page.get_by_role("button", name="Show").click()
    wrong = page.get_by_role("status").filter(has_text="is not an expression")
    expect(wrong).to_contain_text("at character 11")
    expression.fill("value.at > 30")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(7)
    expect(status).to_contain_text("The filter failed for 10 records, first for partition 0")


def test_a_filter_goes_on_until_it_has_found_enough(service: Service, page: Page) -> None:
    pytest.importorskip("cel_expr_python", reason="needs the extra console")
    service.create("prices", cleanup_policy="delete")
    service.produce("prices", *((f"p{at}", f'{{"at": {at}}}') for at in range(130)))

    def ask_for_few(route: Route) -> None:
        route.continue_(url=route.request.url.replace("limit=50", "limit=7"))

    page.route("**/api/records?*", ask_for_few)
    open_at(page, "topic/prices/records", "prices")
    page.get_by_role("textbox", name="Filter by an expression").fill("value.at % 2 == 0")
    page.get_by_role("button", name="Show").click()
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("p128")
    expect(page.get_by_role("status").filter(has_text="shown")).to_contain_text("56 shown")


def test_records_are_found_by_key_offset_and_time_and_followed(
    service: Service, page: Page
) -> None:
    service.create("prices", cleanup_policy="delete")
    service.produce("prices", *((f"p{at % 12}", f'{{"at": {at}}}') for at in range(40)))
    open_at(page, "topic/prices/records", "prices")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(40)
    page.get_by_role("searchbox", name="Search keys and values").fill("p1")
    page.get_by_role("checkbox", name="exactly this key").check()
    expect(rows).to_have_count(4)  # 1, 13, 25, 37; and not p10 or p11
    start = page.get_by_role("textbox", name="From an offset or a time, backwards")
    start.fill("13")
    start.press("Enter")
    expect(rows).to_have_count(2)
    start.fill("2001-01-01")
    start.press("Enter")
    expect(rows).to_have_count(0)
    start.fill("one day")
    start.press("Enter")
    expect(page.get_by_text("is neither an offset nor a time")).to_be_visible()
    start.fill("")
    start.press("Enter")
    expect(rows).to_have_count(4)
    page.get_by_role("combobox", name="Show values").select_option("hex")
    expect(rows.nth(0)).to_contain_text("7b 22 61 74 22 3a 20 33 37 7d")
    page.get_by_role("combobox", name="Show values").select_option("json")
    expect(rows.nth(0)).to_contain_text('"at": 37')
    page.get_by_role("checkbox", name="follow").check()
    service.produce("prices", ("p1", '{"at": 40}'), ("p2", '{"at": 41}'))
    expect(rows).to_have_count(5)
    expect(rows.nth(0)).to_contain_text('"at": 40')
    with page.expect_download() as kept:
        page.get_by_role("button", name="Download").click()
    lines = kept.value.path().read_text().splitlines()
    assert kept.value.suggested_filename == "prices.jsonl"
    assert [json.loads(one)["key"]["text"] for one in lines] == ["p1"] * 5


def test_a_user_logs_in_and_sees_and_does_what_the_acls_allow(
    tmp_path: Path, browser: Browser
) -> None:
    service = Service(tmp_path / "broker", {**IDLE, **SECURED})
    inside = free_port()
    service.settings |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{service.port},INSIDE://127.0.0.1:{inside}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "odradek.scram.users": 'SCRAM-SHA-256=[name=ann,password="anns secret"]',
    }
    service.start()
    service.create("mine", "theirs")
    entries = [
        AclBinding(
            ResourceType.TOPIC, "mine", ResourcePatternType.LITERAL, "User:ann", "*", operation,
            AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]  # fmt: skip
    admin = AdminClient({"bootstrap.servers": service.bootstrap, "log_level": 0})
    for one in admin.create_acls(entries).values():
        one.result(20)
    page = browser.new_context(base_url=service.http).new_page()
    page.goto("/#/topics")
    page.get_by_role("button", name="Unlock actions").click()
    shown = dialog(page, "Admin token, or a login")
    for password in ("a wrong one", "anns secret"):
        shown.get_by_label("User").fill("ann")
        shown.get_by_label("Password").fill(password)
        shown.get_by_role("button", name="Unlock").click()
        if password == "a wrong one":
            expect(shown.get_by_role("alert")).to_contain_text("the password is wrong")
    expect(page.get_by_role("button", name="Log out ann")).to_be_visible()
    expect(page.get_by_role("link", name="mine")).to_be_visible()
    expect(page.get_by_role("link", name="theirs")).to_have_count(0)
    page.get_by_role("link", name="mine").click()
    page.get_by_role("button", name="Write a record").click()
    fill_in(page, "Write a record to mine", {"Key": "k", "Value": "v"})
    confirm(page)
    expect(page.locator("#toast")).to_contain_text("at offset 0")
    page.get_by_role("button", name="Delete topic").click()
    expect(page.locator("#toast")).to_contain_text("User:ann lacks the right DELETE on topic mine")
    page.get_by_role("link", name="Cleaner", exact=True).click()
    expect(page.get_by_text("lacks the right DESCRIBE on cluster")).to_be_visible()
    page.get_by_role("button", name="Log out ann").click()
    expect(page.get_by_role("button", name="Unlock actions")).to_be_visible()
    page.context.close()
    service.stop()
