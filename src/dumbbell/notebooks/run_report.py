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
from dumbbell.report.pages.run import Report
from dumbbell.report.parts import setup

report = Report(run_dir)
setup()

# %%
report.header()

# %% [markdown]
# ## What limited each flow

# %%
report.limits()

# %% [markdown]
# ## Asked and measured
# A run is valid only if everything it asked for was read back and measured.

# %%
report.facts()

# %% [markdown]
# ## Flows

# %%
report.all_flows()

# %%
report.fetches()

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

# %%
report.available()

# %%
report.pstreams()

# %% [markdown]
# ## Queue of the router

# %%
report.queue()

# %% [markdown]
# ## Connections by the names of RFC 4898

# %%
report.variables()

# %% [markdown]
# ## Hosts and versions

# %%
report.hosts()

# %% [markdown]
# ## State of the hosts

# %%
report.states()

# %% [markdown]
# ## Do it again

# %%
report.reproduce()
