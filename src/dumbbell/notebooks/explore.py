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
inventory = "inventory/lab"  # which says where InfluxDB is
run = ""  # by default the one that was sampled last
minutes = 5  # of its last samples

# %%
from dumbbell.report.pages.explore import Explore
from dumbbell.report.parts import setup

explore = Explore(inventory, run, minutes)
setup()

# %% [markdown]
# # Runs in InfluxDB
# A cell that is executed again asks again.

# %%
explore.runs()

# %% [markdown]
# ## Flows

# %%
explore.flows()

# %% [markdown]
# ## The last minutes

# %%
explore.series()
