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
first = ["results/latest"]
second = ["results/latest"]

# %%
from dumbbell.report.pages.comparison import Comparison
from dumbbell.report.parts import setup

runs = Comparison(first, second)
setup()

# %% [markdown]
# # Two sets of runs

# %%
runs.figure()

# %%
runs.table()
