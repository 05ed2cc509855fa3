"""Pictures of the web page of a busy broker, and of a cluster: docs/images/page-*.png.

    python -m bench.screenshots

Takes half a minute. Needs a browser (Debian's chromium).
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Page, sync_playwright

from bench.browser import CHROMIUM, NO_CHROMIUM, launch, unlock
from bench.processes import ROOT, OdradekProcess

IMAGES = ROOT / "docs" / "images"
# For each picture: the view, its heading, the width of the window, the colours.
PICTURES = {
    "page-light": ("", "Overview", 1280, "light"),
    "page-dark": ("topics", "Topics", 1280, "dark"),
    "page-narrow": ("topic/tickets", "tickets", 390, "light"),
    "page-cleaner": ("cleaner", "Cleaner", 1280, "light"),
    "page-latest": ("topic/prices/latest", "prices", 1280, "light"),
}
_HEIGHT = 860
_WARM_UP_S = 25.0
_SETTINGS = {"log.cleaner.backoff.ms": "2000"}
_COMPACT = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "150000",
    "min.cleanable.dirty.ratio": "0.5",
}
_TOPICS = {
    "prices": (3, _COMPACT),
    "tickets": (8, {**_COMPACT, "min.compaction.lag.ms": "10000"}),
    "accounts": (2, {**_COMPACT, "min.cleanable.dirty.ratio": "0.8"}),
    "clicks": (4, {"internal.segment.bytes": "150000"}),
}


def main() -> int:
    """Start a broker, keep it busy, and take the pictures."""
    if CHROMIUM is None:
        print(NO_CHROMIUM, file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="odradek-page-") as folder:
        broker = OdradekProcess(Path(folder), _SETTINGS)
        broker.start()
        try:
            with at_work(broker.bootstrap), sync_playwright() as play:
                time.sleep(_WARM_UP_S)
                started = launch(play)
                for name, (path, heading, width, scheme) in PICTURES.items():
                    page = started.new_page(
                        base_url=broker.http,
                        viewport={"width": width, "height": _HEIGHT},
                        color_scheme="dark" if scheme == "dark" else "light",
                    )
                    take(page, path, heading, IMAGES / f"{name}.png")
                page = started.new_page(
                    base_url=broker.http, viewport={"width": 1280, "height": _HEIGHT}
                )
                token = (broker.data / "odradek-admin-token").read_text().strip()
                take_action(page, token, IMAGES / "page-action.png")
                started.close()
        finally:
            broker.stop()
    take_cluster()
    return 0


def take_cluster() -> None:
    """Take the picture of a cluster of which one broker has stopped."""
    with tempfile.TemporaryDirectory(prefix="odradek-page-") as folder, ExitStack() as stack:
        brokers = []
        for node_id, rack in enumerate(("north", "east", "south"), 1):
            settings = {
                "node.id": str(node_id),
                "broker.rack": rack,
                "odradek.catalog.url": f"sqlite://{folder}/catalog.db",
            }
            one = OdradekProcess(Path(folder) / str(node_id), settings)
            one.start()
            stack.callback(one.stop)
            brokers.append(one)
        _create(brokers[0].bootstrap)
        brokers[-1].stop()
        with sync_playwright() as play:
            started = launch(play)
            page = started.new_page(
                base_url=brokers[0].http, viewport={"width": 1280, "height": _HEIGHT}
            )
            take(page, "cluster", "Cluster", IMAGES / "page-cluster.png")
            started.close()


def take(page: Page, path: str, heading: str, picture: Path) -> None:
    """Take a picture of a view, once it has received data from the broker."""
    page.goto(f"/#/{path}")
    page.get_by_role("heading", level=1, name=heading).wait_for()
    page.locator("#link.live").wait_for(state="attached")
    page.wait_for_timeout(1500)
    page.screenshot(path=picture)
    page.close()
    print(f"took {picture.relative_to(ROOT)}")


def take_action(page: Page, token: str, picture: Path) -> None:
    """Take a picture of the effects of an action, before they are confirmed."""
    page.goto("/#/topic/prices/settings")
    page.get_by_role("button", name="Unlock actions").click()
    unlock(page, token)
    page.get_by_role("button", name="Change cleanup.policy").click()
    form = page.get_by_role("dialog", name="Change cleanup.policy")
    form.get_by_role("textbox", name="Value").fill("compact,delete")
    form.get_by_role("button", name="Go on").click()
    page.get_by_role("dialog", name="This will be done").wait_for()
    page.screenshot(path=picture)
    page.close()
    print(f"took {picture.relative_to(ROOT)}")


@contextmanager
def at_work(bootstrap: str) -> Iterator[None]:
    """Write and read records while the pictures are taken."""
    _create(bootstrap)
    ending = threading.Event()
    work = [
        threading.Thread(target=_write, args=(bootstrap, ending)),
        threading.Thread(target=_read, args=(bootstrap, "search-index", ["tickets"], ending)),
        threading.Thread(target=_read, args=(bootstrap, "shop", ["prices", "clicks"], ending)),
    ]
    for thread in work:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in work:
            thread.join()


def _create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = [NewTopic(name, count, 1, config=config) for name, (count, config) in _TOPICS.items()]
    for one in admin.create_topics(made).values():
        one.result(20)


def _write(bootstrap: str, ending: threading.Event) -> None:
    chance = random.Random(6)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    while not ending.wait(0.1):
        for _ in range(150):
            number = chance.randrange(400)
            price = {"product": f"p{number}", "price": round(chance.uniform(1, 99), 2)}
            gone = chance.random() < 0.03
            producer.produce("prices", None if gone else json.dumps(price), f"p{number}")
            ticket = {
                "id": chance.randrange(6000),
                "status": chance.choice(["new", "open", "pending", "solved"]),
                "subject": "the printer is on fire",
            }
            producer.produce("tickets", json.dumps(ticket), str(ticket["id"]))
        for _ in range(30):
            producer.produce("accounts", '{"plan": "team"}', str(chance.randrange(3000)))
            producer.produce("clicks", f'{{"page": "/{chance.randrange(50)}"}}')
        producer.poll(0)
    producer.flush(10)


def _read(bootstrap: str, group: str, topics: list[str], ending: threading.Event) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": f"{group}-1",
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 1000,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe(topics)
        while not ending.is_set():
            consumer.consume(500, timeout=0.3)
    except KafkaException as error:
        print(f"group {group}: {error}", file=sys.stderr)
    finally:
        consumer.close()


if __name__ == "__main__":
    sys.exit(main())
