"""Run by an interpreter that has TensorFlow: reads TF_CONFIGs by its own resolver, and tells what it made of them.

usage: tensorflow_reader.py < ["{…}", …]
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import multi_worker_util


def read(text: str) -> dict[str, Any]:
    os.environ["TF_CONFIG"] = text
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster, place = resolver.cluster_spec(), (resolver.task_type, resolver.task_id)
    multi_worker_util._validate_cluster_spec(cluster, *place)  # noqa: SLF001 - what its strategy calls
    return {
        "cluster": cluster.as_dict(),
        "task": place,
        "address": cluster.task_address(*place),
        "is_chief": multi_worker_util.is_chief(cluster, *place),
    }


if __name__ == "__main__":
    print("answer " + json.dumps([read(text) for text in json.load(sys.stdin)]))
