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
from dumbbell.report.pages.atou import AtouRun, Simulations
from dumbbell.report.parts import setup

page = Simulations()
run = AtouRun(run_dir)
setup()

# %% [markdown]
# # The original's experiments in the simulator

# %%
page.compared()

# %% [markdown]
# ## Start and losses, with and without delayed ACKs

# %%
page.goodput("delayed_acks")

# %%
page.state("delayed_acks")

# %% [markdown]
# ## Decrease and increase

# %%
page.goodput("aimd")

# %%
page.goodput("scalable")

# %% [markdown]
# ## Larger segments, and virtually larger ones

# %%
page.goodput("segment_size")

# %%
page.goodput("virtual_mss")

# %% [markdown]
# ## Ways out of slow start

# %%
page.goodput("ssincr")

# %%
page.goodput("vegas_exit")

# %%
page.state("vegas_exit")

# %%
page.goodput("lossy_start")

# %%
page.state("lossy_start")

# %% [markdown]
# ## Vegas and Reno

# %%
page.goodput("deep_buffers")

# %%
page.state("deep_buffers")

# %%
page.goodput("sawtooth")

# %% [markdown]
# ## Packets that overtake others

# %%
page.goodput("cable")

# %%
page.goodput("reordering")

# %% [markdown]
# ## Paths that limit by other means

# %%
page.goodput("policed")

# %%
page.goodput("ack_limited")

# %% [markdown]
# # In a run

# %%
run.header()

# %%
run.numbers()

# %%
run.goodput()

# %%
run.cwnd()

# %%
run.srtt()
