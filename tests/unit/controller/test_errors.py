"""Errors pass from one process to another whole: a pool of workers would else stop at the first one."""

import pickle

import pytest

from controller.config.yaml_document import ConfigError, ConfigProblem
from controller.errors import ColumnError, InvalidValueError
from controller.limits.hose_model import AdmissionError, Overload


@pytest.mark.parametrize(
    "error",
    [
        InvalidValueError("rate", -1, "is negative"),
        ColumnError("rate", 3, -1.0, "is not"),
        ConfigError("dets.yaml", [ConfigProblem(2, 1, "vlans", "are none"), ConfigProblem(1, 1, "control", "is odd")]),
        AdmissionError("receive_limit_bps", 2000, Overload("port s1:1 (receiving)", 3000, 2500), 1500),
    ],
)
def test_an_error_is_the_same_in_another_process(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
