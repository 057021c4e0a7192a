# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% tags=["parameters"]
run_dir = "results/latest"

# %%
import dumbbell
from dumbbell.report.parts import setup
from dumbbell.results import RunSet

setup()

# %%
runs = dumbbell.open(run_dir)
assert isinstance(runs, RunSet), "this notebook is for several points"
runs

# %%
runs.medians()

# %%
runs.plot.curve("goodput")

# %%
runs.plot.curve("rtt")

# %%
runs.plot.curve("retransmits")

# %%
runs.plot.goodput_delay()

# %%
runs.plot.distribution("rtt")

# %%
runs.plot.box("goodput")

# %%
runs.plot.convergence()
