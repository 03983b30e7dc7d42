"""What is there for operators to deploy: the Containerfile, Kubernetes manifests, the dashboard. Each
names things of ours (paths, flags, ports, routes, metrics), and all of them must exist."""
import json
import re
import shlex
import sys

import promql_parser
import pytest
import yaml
from conftest import ROOT, headrace
from prometheus_client.parser import text_string_to_metric_families

import make_tiny

sys.path.insert(0, str(ROOT / "tools"))
import check_container  # noqa: E402

PACKAGING = ROOT / "packaging"
HELP = headrace("serve", "--help").stdout
FLAGS = set(re.findall(r"^  (--[a-z-]+)", HELP, re.M))
ROUTES = re.findall(r'^HR_ROUTE\(GET, "(/[^"]*)", \w+, (\w+)', (ROOT / "src/server/routes.def").read_text(),
                    re.M)
DEFAULT_PORT = re.search(r"--port N +port \((\d+)\)", HELP)[1]


# ---- the image -----------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def steps():
    return check_container.parse((PACKAGING / "Containerfile").read_text())


def last_stage(steps):
    return steps[max(i for i, (name, _) in enumerate(steps) if name == "FROM"):]


def test_only_instructions_that_are_checked(steps):
    assert {name for name, _ in steps} <= {m[3:].upper() for m in dir(check_container.Build)
                                           if m.startswith("do_")}
    stages = []
    for name, rest in steps:
        if name == "FROM":
            image, *named = rest.split(" AS ")
            assert image == check_container.IMAGE
            stages += named
        options, rest = check_container.options(rest)
        for option in options.values():
            origin = re.search(r"from=(\w+)", option)
            assert not origin or origin[1] in stages


def test_commands_are_ours_or_debians(steps):
    """Each command of a RUN line is a script of this repository or one that its stage has."""
    known = {"cmake", "ninja", "cpack", "apt-get", "rm", "install"}
    scripts = set()
    for _, rest in [s for s in steps if s[0] == "RUN"]:
        for command in check_container.options(rest)[1].split("&&"):
            word = shlex.split(command)[0]
            if word.startswith("tools/"):
                scripts.add(word)
                assert (ROOT / word).stat().st_mode & 0o100, word
            else:
                assert word in known, word
    assert scripts == {"tools/setup.sh"}
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    used, = re.findall(r"cmake --preset (\S+)", " ".join(r for _, r in steps))
    assert used in [p["name"] for p in presets]


def test_context_is_the_repository(steps):
    """What is copied holds all that a build reads, and nothing that is fetched, built or history."""
    names = {str(n) for n in check_container.context()}
    assert {"CMakeLists.txt", "tools/setup.sh", "src/cli/main.c", "packaging/headrace.pc.in",
            "include/headrace/headrace.h", "packaging/copyright"} <= names
    assert not any(n.split("/")[0] in (".git", "build", ".cache") or "__pycache__" in n for n in names)


def test_image_runs_as_nobody_special(steps):
    last = dict(last_stage(steps))
    user, group = last["USER"].split(":")
    assert int(user) > 999 and int(group) > 999
    assert last["EXPOSE"] == DEFAULT_PORT
    assert last["ENV"] == f"XDG_CACHE_HOME={last['VOLUME']}"
    entry, command = json.loads(last["ENTRYPOINT"]), json.loads(last["CMD"])
    assert entry == ["headrace"] and command[0] == "serve"
    assert {a for a in command if a.startswith("--")} <= FLAGS


# ---- Kubernetes ----------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def manifests():
    folder = PACKAGING / "kubernetes"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    files = {p.name for p in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == files
    parts = [d for f in sorted(files) for d in yaml.safe_load_all((folder / f).read_text())]
    return {d["kind"]: d for d in parts}


@pytest.fixture(scope="module")
def pod(manifests):
    return manifests["Deployment"]["spec"]["template"]["spec"]


def test_kinds(manifests):
    assert set(manifests) == {"Deployment", "Service", "ServiceMonitor", "PersistentVolumeClaim"}


def test_selectors_find_the_pods(manifests):
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind, path in [("Deployment", ["matchLabels"]), ("Service", []), ("ServiceMonitor", ["matchLabels"])]:
        selector = manifests[kind]["spec"]["selector"]
        for key in path:
            selector = selector[key]
        chosen = manifests["Service"]["metadata"]["labels"] if kind == "ServiceMonitor" else labels
        assert selector and selector.items() <= chosen.items(), kind


def test_arguments_are_the_commands(pod, tmp_path):
    """Flags that exist, with values that are accepted: the command line gets as far as the model."""
    container, = pod["containers"]
    assert container["args"][0] == "serve"
    arguments = ["/nowhere" if a.startswith("/models") else a for a in container["args"]]
    r = headrace(*[a.replace("0.0.0.0", "127.0.0.1").replace("--port=8000", "--port=0")
                   for a in arguments])
    assert r.returncode == 1 and "no such file" in r.stderr, r.stderr
    environment = {e["name"] for e in container["env"]}
    assert all(name in HELP for name in environment)


def test_ports(manifests, pod):
    container, = pod["containers"]
    port, = container["ports"]
    assert f"--port={port['containerPort']}" in container["args"]
    service, = manifests["Service"]["spec"]["ports"]
    endpoint, = manifests["ServiceMonitor"]["spec"]["endpoints"]
    assert service["targetPort"] == port["name"] and endpoint["port"] == service["name"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]


def test_probes_ask_what_needs_no_key(pod):
    open_routes = {path for path, access in ROUTES if access == "OPEN"}
    container, = pod["containers"]
    paths = {p: container[p]["httpGet"]["path"] for p in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert set(paths.values()) <= open_routes
    # a server that drains is not ready, and not to be killed either
    assert paths["startupProbe"] == paths["readinessProbe"] == "/health" != paths["livenessProbe"]


def test_metrics_route(manifests):
    endpoint, = manifests["ServiceMonitor"]["spec"]["endpoints"]
    assert dict(ROUTES)[endpoint["path"]] == "KEYED"
    container, = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    key, = [e["valueFrom"]["secretKeyRef"] for e in container["env"] if e["name"] == "HEADRACE_API_KEY"]
    assert endpoint["authorization"]["credentials"] == key


def test_time_to_end(pod):
    container, = pod["containers"]
    timeout, = [int(a.split("=")[1]) for a in container["args"] if a.startswith("--shutdown-timeout=")]
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > timeout + pause


def test_pod_is_confined(pod, steps):
    last = dict(last_stage(steps))
    container, = pod["containers"]
    context = {**pod["securityContext"], **container["securityContext"]}
    assert f"{context['runAsUser']}:{context['runAsGroup']}" == last["USER"]
    assert context["readOnlyRootFilesystem"] and context["runAsNonRoot"]
    assert not context["allowPrivilegeEscalation"] and context["capabilities"] == {"drop": ["ALL"]}
    mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
    assert set(mounts) == {"/models", last["VOLUME"]}
    assert mounts["/models"]["readOnly"] and not mounts[last["VOLUME"]].get("readOnly")
    assert {m["name"] for m in mounts.values()} == {v["name"] for v in pod["volumes"]}


def test_volume_claim(manifests, pod):
    claims = [v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"]
              if "persistentVolumeClaim" in v]
    assert claims == [manifests["PersistentVolumeClaim"]["metadata"]["name"]]


# ---- the dashboard -------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def dashboard():
    return json.loads((PACKAGING / "grafana/headrace.json").read_text())


def expressions(dashboard):
    """PromQL with Grafana's own variables filled in."""
    return [t["expr"].replace("$__rate_interval", "1m").replace("$model", "m")
            for p in dashboard["panels"] for t in p["targets"]]


def metrics_of(expression):
    return set(re.findall(r"[a-z]+:[a-z0-9_]+|process_[a-z_]+", re.sub(r'"[^"]*"', "", expression)))


def labels_of(expression):
    """Labels in selectors and groups, and the metrics of the expression."""
    found = re.findall(r'(\w+)=~?"', expression)
    for group in re.findall(r"by \(([^)]*)\)", expression):
        found += [w.strip() for w in group.split(",")]
    return set(found)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory, serve):
    """Names of samples on /metrics after a request, with their labels."""
    model = tmp_path_factory.mktemp("deploy") / "tiny"
    make_tiny.hf(model, "llama")
    server = serve(model, "--max-num-seqs", 4, "--max-num-batched-tokens", 64, "--max-model-len", 128,
                   "--speculative-config",
                   '{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}').ready()
    server.post("/v1/completions", {"prompt": "abab" * 8, "max_tokens": 4})
    out = {}
    for family in text_string_to_metric_families(server.get("/metrics")[2].decode()):
        for sample in family.samples:
            out.setdefault(sample.name, set()).update(sample.labels)
    return out


def test_dashboard_asks_for_metrics_that_there_are(dashboard, scraped):
    asked = set().union(*map(metrics_of, expressions(dashboard)))
    assert len(asked) > 15
    assert asked <= set(scraped), asked - set(scraped)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\S+), (\w+)\)",
                                         variable["query"]["query"]).groups()
            assert label in scraped[metric]


def test_dashboard_uses_labels_that_there_are(dashboard, scraped):
    given = {"instance", "job"}  # Prometheus's own
    for expression in expressions(dashboard):
        have = set.intersection(*(scraped[m] for m in metrics_of(expression))) | given
        assert labels_of(expression) <= have, expression
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert wanted <= labels_of(target["expr"]) | given, target


def test_dashboard_is_promql(dashboard):
    for expression in expressions(dashboard):
        promql_parser.parse(expression)


def test_dashboard_has_its_panels_side_by_side(dashboard):
    cells, ids = set(), [p["id"] for p in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        covered = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not covered & cells, panel["title"]
        cells |= covered


def test_every_metric_of_the_reference_is_known(scraped):
    """docs/METRICS.md is the other source of names; a dashboard made from it asks for what there is."""
    table = set(re.findall(r"^\| `([a-z]+[:_][a-z0-9_]+)`", (ROOT / "docs/METRICS.md").read_text(), re.M))
    missing = {m for m in table if m not in scraped and f"{m}_bucket" not in scraped}
    assert not missing
