"""A network with one hidden layer and its training step in NumPy, with derivatives written by hand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

RATE = np.float32(0.01)


class Net(NamedTuple):
    """The parameters: a matrix (inputs, hidden), hidden biases, a matrix (hidden, classes), biases; all float32."""

    w1: np.ndarray
    b1: np.ndarray
    w2: np.ndarray
    b2: np.ndarray

    def step(self, images: np.ndarray, labels: np.ndarray) -> np.floating:
        """Take a step of gradient descent on the mean cross entropy. Return its value before the step.

        ``images`` (rows, inputs) are float32 and ``labels`` (rows,) int64.
        """
        rows = np.arange(len(labels))
        hidden = np.maximum(images @ self.w1 + self.b1, 0)
        scores = hidden @ self.w2 + self.b2
        scores -= scores.max(1, keepdims=True)
        grad = np.exp(scores)
        totals = grad.sum(1, keepdims=True)
        loss: np.floating = (np.log(totals[:, 0]) - scores[rows, labels]).mean()
        grad /= totals
        grad[rows, labels] -= 1
        grad /= len(labels)
        grad_hidden = (grad @ self.w2.T) * (hidden > 0)
        changes = images.T @ grad_hidden, grad_hidden.sum(0), hidden.T @ grad, grad.sum(0)
        for parameter, change in zip(self, changes, strict=True):
            change *= RATE
            parameter -= change
        return loss
