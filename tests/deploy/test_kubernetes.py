"""Kubernetes, without a cluster: the manifests are valid, and so is the Job that a backfill sends.

The Job's command is then run here, as its pod would run it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import dagster as dg
import kubernetes_validate
import pytest
import yaml
from deploy.deployment import DEPLOYED, Deployment, objects_added
from deploy.job_server import job_server
from lineage_daemon import daemon
from lineage_run import DEADLINE_S, ROOT, wait_for

from resources.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FOLDER = ROOT / "deploy" / "kubernetes"
VERSION = kubernetes_validate.latest_version()
SHARD = DEPLOYED[-1].key
NAMESPACE, IMAGE = "speech", "speech-assets:1"
pytestmark = pytest.mark.timeout(900)


def manifests() -> list[dict[str, Any]]:
    text = (FOLDER / "processes.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize(
    "manifest", manifests(), ids=lambda m: f"{m['kind']}-{m['metadata']['name']}"
)
def test_a_manifest_is_what_kubernetes_takes(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_a_manifest_with_a_word_that_kubernetes_does_not_know_is_refused() -> None:
    manifest = manifests()[-1]
    manifest["spec"]["selektor"] = manifest["spec"].pop("selector")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, VERSION, strict=True)


@pytest.mark.parametrize("name", ["dagster.yaml", "processes.yaml"])
def test_each_file_says_that_no_cluster_has_seen_it(name: str) -> None:
    assert "not run on a cluster" in (FOLDER / name).read_text(encoding="utf-8").splitlines()[0]


def test_the_processes_are_given_what_the_instance_is_told_by_the_environment() -> None:
    instance = (FOLDER / "dagster.yaml").read_text(encoding="utf-8")
    for deployment in (m for m in manifests() if m["kind"] == "Deployment"):
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        given = {entry["name"] for entry in container["env"]}
        asked = {
            line.split()[-1] for line in instance.splitlines() if line.strip().startswith("env:")
        }
        assert asked - given == {"DAGSTER_POSTGRES_URL"}  # It holds a password: of the Secret.
        assert container["envFrom"] == [{"secretRef": {"name": "speech-assets"}}]


class OutsideTheCluster(Deployment):
    """The instance of deploy/kubernetes, whose daemon finds the cluster by a kubeconfig."""

    def prepare(self) -> None:
        """As it ships, but for where the cluster is."""
        super().prepare()
        config = yaml.safe_load(self.configuration.read_text(encoding="utf-8"))
        launcher = config["run_launcher"]["config"]
        launcher |= {"load_incluster_config": False, "kubeconfig_file": str(self.folder / "kube")}
        (self.folder / "dagster.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


def test_a_backfill_sends_a_valid_job_with_a_gpu_whose_command_makes_the_shard(
    tmp_path: Path,
    archived: Store,
    device_profile: dict[str, str],
    new_database: Callable[[], str],
    shards_made_here: dict[str, bytes],
) -> None:
    services = {
        "DAGSTER_POSTGRES_URL": new_database(),
        "DAGSTER_K8S_NAMESPACE": NAMESPACE,
        "DAGSTER_K8S_IMAGE": IMAGE,
    }
    deployment = OutsideTheCluster(tmp_path, device_profile, engine="kubernetes", services=services)
    shutil.copytree(archived.root, deployment.root)
    with job_server() as cluster:
        cluster.write_kubeconfig(tmp_path / "kube")
        deployment.launch([SHARD])
        with daemon(deployment) as process:

            def was_sent() -> bool:
                assert process.poll() is None, deployment.said()
                return bool(cluster.jobs)

            wait_for(was_sent, "the daemon has sent a job")
    [(path, job)] = cluster.jobs.items()
    assert path.startswith(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/")
    kubernetes_validate.validate(
        {**job, "apiVersion": "batch/v1", "kind": "Job"}, VERSION, strict=True
    )
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["image"] == IMAGE
    assert container["resources"]["limits"] == {"memory": "16Gi", "nvidia.com/gpu": "1"}
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "8Gi"}
    assert {"secretRef": {"name": "speech-assets"}} in [_plain(e) for e in container["envFrom"]]
    assert pod["serviceAccountName"] == "dagster"
    assert pod["restartPolicy"] == "Never"

    # The names of image and namespace are the daemon's alone.
    pod_environment = {
        key: value
        for key, value in deployment.environment.items()
        if not key.startswith("DAGSTER_K8S_")
    }
    arguments = [*(container.get("command") or []), *container["args"]]
    assert arguments[:2] == ["dagster", "api"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *arguments],
        cwd=tmp_path,
        env=pod_environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    with deployment.instance() as instance:
        [run] = instance.get_runs()
        assert run.is_success
        assert instance.get_materialized_partitions(dg.AssetKey("tokens")) == {SHARD}
    made = objects_added(Store(deployment.root), archived)
    assert made == {key: data for key, data in shards_made_here.items() if SHARD in key}


def _plain(source: dict[str, Any]) -> dict[str, Any]:
    """Without what is null."""
    return {
        name: _plain(value) if isinstance(value, dict) else value
        for name, value in source.items()
        if value is not None
    }
