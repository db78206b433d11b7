"""The traffic of DETS's figures 5 and 6."""

from experiments.scenarios import dets_fig5, dets_fig6
from experiments.scenarios.comparison import compared

scenarios = (compared(dets_fig5.scenario), compared(dets_fig6.scenario))
