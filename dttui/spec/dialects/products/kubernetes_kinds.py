"""Objects of Kubernetes, told by `apiVersion` and `kind`: those of Kubeflow that train with torch or MPI are jobs."""

from __future__ import annotations

from collections.abc import Callable

from dttui.i18n import N_
from dttui.spec.dialects.products.product_kind import BY_COMMAND, Data, ProductKind, text_at

_POD = N_("Import the command of its container: dttui import -- COMMAND.")
_RUNTIME = N_("Import the TrainJob that names it.")
_BY_TF_CONFIG = N_(
    "Its workers find each other by TF_CONFIG: framework tensorflow. Import the command: dttui import -- COMMAND."
)


def _is(kind: str, group: str = "") -> Callable[[Data], bool]:
    """Return what tells an object by its kind, and by the group of its interface where one is given."""

    def tells(data: Data) -> bool:
        return data.get("kind") == kind and group in text_at(data, "apiVersion")

    return tells


def _kind(title: str, kind: str, group: str = "", module: str = "", remedy: str = BY_COMMAND) -> ProductKind:
    return ProductKind(title, _is(kind, group), module, remedy, ("kind",))


def is_kubernetes(data: Data) -> bool:
    """Whether a document is an object of Kubernetes."""
    return bool(text_at(data, "apiVersion")) and bool(text_at(data, "kind"))


KUBERNETES_KINDS = (
    _kind(N_("a Kubeflow TrainJob"), "TrainJob", "trainer.kubeflow.org", "trainjob"),
    _kind(N_("a Kubeflow PyTorchJob"), "PyTorchJob", "kubeflow.org", "pytorchjob"),
    _kind(N_("a Kubeflow MPIJob"), "MPIJob", "kubeflow.org", "mpijob"),
    _kind(N_("a Kubeflow TFJob"), "TFJob", "kubeflow.org", remedy=_BY_TF_CONFIG),
    _kind(N_("a Kubeflow JAXJob"), "JAXJob", "kubeflow.org"),
    _kind(N_("a Kubeflow PaddleJob"), "PaddleJob", "kubeflow.org"),
    _kind(N_("a Kubeflow XGBoostJob"), "XGBoostJob", "kubeflow.org"),
    _kind(N_("a Kubeflow MXJob"), "MXJob", "kubeflow.org"),
    _kind(N_("a Kubeflow training runtime"), "ClusterTrainingRuntime", "trainer.kubeflow.org", remedy=_RUNTIME),
    _kind(N_("a Kubeflow training runtime"), "TrainingRuntime", "trainer.kubeflow.org", remedy=_RUNTIME),
    _kind(N_("a Katib experiment"), "Experiment", "kubeflow.org"),
    _kind(N_("a KubeRay RayJob"), "RayJob", "ray.io"),
    _kind(N_("a KubeRay RayCluster"), "RayCluster", "ray.io"),
    _kind(N_("a KubeRay RayService"), "RayService", "ray.io"),
    _kind(N_("a Volcano job"), "Job", "volcano.sh", remedy=_POD),
    _kind(N_("a Kubernetes Job"), "Job", "batch", remedy=_POD),
    _kind(N_("a Kubernetes CronJob"), "CronJob", "batch", remedy=_POD),
    _kind(N_("a Kubernetes JobSet"), "JobSet", "jobset", remedy=_POD),
    _kind(N_("a LeaderWorkerSet"), "LeaderWorkerSet", "leaderworkerset", remedy=_POD),
    _kind(N_("a Kubernetes Pod"), "Pod", remedy=_POD),
    _kind(N_("a Kubernetes Deployment"), "Deployment", remedy=_POD),
    _kind(N_("a Kubernetes StatefulSet"), "StatefulSet", remedy=_POD),
    _kind(N_("a Kubernetes DaemonSet"), "DaemonSet", remedy=_POD),
    _kind(N_("a Kubernetes Service"), "Service", "v1"),
    _kind(N_("a Kubernetes ConfigMap"), "ConfigMap", "v1"),
    _kind(N_("an Argo workflow"), "Workflow", "argoproj.io", remedy=_POD),
    _kind(N_("an Argo workflow"), "WorkflowTemplate", "argoproj.io", remedy=_POD),
    _kind(N_("a Tekton pipeline"), "Pipeline", "tekton.dev"),
    _kind(N_("a Kustomization"), "Kustomization", "kustomize"),
    ProductKind(N_("an object of Kubernetes"), is_kubernetes, place=("kind",)),
)
"""The last is told of any other."""
