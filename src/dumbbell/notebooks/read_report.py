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
from dumbbell.report.pages.read import ReadReport
from dumbbell.report.parts import setup

report = ReadReport(run_dir)
setup()

# %%
report.header()

# %% [markdown]
# ## What limited each flow

# %%
report.limits()

# %% [markdown]
# ## What the files do not tell

# %%
report.files()

# %% [markdown]
# ## Flows

# %%
report.all_flows()

# %% [markdown]
# ## Goodput

# %%
report.goodput()

# %% [markdown]
# ## Fairness

# %%
report.fairness()

# %% [markdown]
# ## Congestion window

# %%
report.cwnd()

# %% [markdown]
# ## Round-trip time

# %%
report.srtt()
