"""What `make generate` writes is what is committed, and `make verify` names the file that is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.support.toolchain.cache import Unavailable
from tools import generate, reference

from crawljob import spec


@pytest.mark.parametrize("path", sorted(generate.files()), ids=str)
def test_a_committed_file_is_what_its_generator_writes(path: Path) -> None:
    text = generate.files()[path]
    assert not list(generate.differing({path: text})), f"{path} differs; run `make generate`"


def test_the_plain_installation_is_what_the_chart_renders(helm: Path) -> None:
    text = generate.install(generate.render(helm))
    assert not list(generate.differing({generate.INSTALL: text})), f"{generate.INSTALL} differs; run `make generate`"


def test_the_charts_readme_is_what_its_values_say() -> None:
    try:
        program = generate.find_helm_docs()
    except Unavailable as error:
        pytest.skip(str(error))
    text = generate.chart_readme(program)
    assert not list(generate.differing({generate.CHART_README: text})), "it differs; run `make generate`"
    assert "| networkPolicy.limits.allowCIDRs | list | `[]` |" in text


def test_a_difference_is_named_and_written_once(tmp_path: Path) -> None:
    same, changed, missing = Path("same"), Path("changed"), Path("folder/missing")
    (tmp_path / same).write_text("a")
    (tmp_path / changed).write_text("old")
    wanted = {same: "a", changed: "new", missing: "b"}
    assert list(generate.differing(wanted, tmp_path)) == [changed, missing]
    assert generate.write(wanted, tmp_path) == [changed, missing]
    assert generate.write(wanted, tmp_path) == []


def test_the_plain_installation_has_nothing_of_helm() -> None:
    text = (generate.ROOT / generate.INSTALL).read_text()
    assert "helm.sh" not in text
    assert "Helm" not in text
    kinds = [item["kind"] for item in yaml.safe_load_all(text)]
    assert kinds.index("Namespace") == 0, "what lives in the namespace comes after it"
    assert {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "ServiceAccount", "Deployment"} < {*kinds}


def test_the_reference_has_a_row_for_every_field_of_the_spec() -> None:
    rows = {row.path: row for row in reference.rows(spec.CrawlJobSpec)}
    assert rows["seeds"].default == "required"
    assert (rows["fetch.workers"].default, rows["fetch.workers"].bounds) == ("`16`", "1 to 1,024")
    assert rows["listen.address"].default == "`127.0.0.1` *"
    assert rows["restartPolicy.backoff.maxSeconds"].type == "integer"
    without_meaning = [path for path, row in rows.items() if not row.meaning]
    assert not without_meaning
