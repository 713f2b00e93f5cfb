"""Run beside the example's train.py: trains by it, while TensorFlow logs how many gradients it packs together."""

from __future__ import annotations

import importlib

import tensorflow as tf

tf.get_logger().setLevel("INFO")
train = importlib.import_module("train")  # The example's, which is laid beside this one.
train.main()
