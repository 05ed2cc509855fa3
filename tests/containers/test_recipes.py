"""The recipes for Testcontainers of docs/testing.md, each by the library of its language.

The libraries come from their registries. Their reaper is an image of others, so it is turned off:
the engine removes what stays.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.containers.asking import consume, produce
from tests.containers.engine import Engine
from tests.testing.test_recipes import recipe

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1_800)]

VALUES = [b"%03d" % number for number in range(20)]
_REAPER = {"TESTCONTAINERS_RYUK_DISABLED": "true"}
# Each prints the address of a broker, and stops it when its input ends.
_PYTHON = """
import sys
from testcontainers_odradek import Odradek
with Odradek() as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""
_NODE = """
import { startOdradek } from "./recipe.mjs";
const { container, bootstrap } = await startOdradek();
console.log(bootstrap);
process.stdin.resume();
process.stdin.on("end", async () => { await container.stop(); });
"""
_GO = """
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"example/odradek"
)

func main() {
	broker, address, err := odradek.Start(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(address)
	io.Copy(io.Discard, os.Stdin)
	if err := broker.Terminate(context.Background()); err != nil {
		panic(err)
	}
}
"""
_JAVA = """
final class Main {
    public static void main(String[] arguments) throws Exception {
        try (Odradek broker = new Odradek()) {
            broker.start();
            System.out.println(broker.bootstrapServers());
            System.in.readAllBytes();
        }
    }
}
"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>tests</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.testcontainers</groupId><artifactId>testcontainers</artifactId><version>1.21.3</version>
  </dependency></dependencies>
</project>
"""


def prepare_python(engine: Engine, folder: Path) -> str:
    packages = folder / "packages"
    engine.sh(f"{sys.executable} -m pip install -q --target {packages} testcontainers==4.15.0")
    (folder / "testcontainers_odradek.py").write_text(recipe("python"))
    (folder / "main.py").write_text(_PYTHON)
    return f"PYTHONPATH={packages} {sys.executable} {folder}/main.py"


def prepare_node(engine: Engine, folder: Path) -> str:
    engine.sh(f"cd {folder} && npm install --silent --no-fund --no-audit testcontainers@11.14.0")
    (folder / "recipe.mjs").write_text(recipe("javascript"))
    (folder / "main.mjs").write_text(_NODE)
    return f"node {folder}/main.mjs"


def prepare_go(engine: Engine, folder: Path) -> str:
    (folder / "go.mod").write_text("module example\n")
    for name, text in (("odradek/recipe.go", recipe("go")), ("main.go", _GO)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    get = "go get github.com/testcontainers/testcontainers-go@v0.40.0"
    engine.sh(f"cd {folder} && {get} && go mod tidy && go build -o main .")
    return f"{folder}/main"


def prepare_java(engine: Engine, folder: Path) -> str:
    (folder / "pom.xml").write_text(_POM)
    (folder / "Odradek.java").write_text(recipe("java"))
    (folder / "Main.java").write_text(_JAVA)
    copy = "mvn -q -B dependency:copy-dependencies -DoutputDirectory=libs"
    engine.sh(f"cd {folder} && {copy} && javac -cp 'libs/*' Odradek.java Main.java")
    return f"java -cp '{folder}/libs/*:{folder}' Main"


_LANGUAGES: Mapping[str, tuple[str, Callable[[Engine, Path], str]]] = {
    "python": (sys.executable, prepare_python),
    "node": ("npm", prepare_node),
    "go": ("go", prepare_go),
    "java": ("mvn", prepare_java),
}


@pytest.mark.parametrize("language", _LANGUAGES)
def test_a_recipe_starts_a_broker(
    containers: Engine, broker_image: str, tmp_path: Path, language: str
) -> None:
    tool, prepare = _LANGUAGES[language]
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool} here")
    containers.podman("tag", broker_image, "docker.io/library/odradek:latest")
    command = prepare(containers, tmp_path)
    with containers.started(command, _REAPER) as process:
        assert process.stdin is not None and process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        produce(port, "orders", VALUES)
        assert consume(port, "orders", len(VALUES)) == VALUES
        process.stdin.close()
        assert process.wait(60) == 0
    assert containers.podman("ps", "--quiet") == ""
