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
point = ""  # directory below points whose recoveries are shown; by default the first with any
flow = ""  # by default the first of TCP that was in recovery
number = 1  # of the recovery that is drawn
around_s = 2.0  # what is drawn before it and after
loss = ""  # of the paths on which reductions are drawn, as the table has it; by default its first

# %%
from dumbbell.report.pages.recovery import Fetches, Recovery, Reductions
from dumbbell.report.parts import setup

recovery = Recovery(run_dir, flow, point)
fetches = Fetches(run_dir)
reductions = Reductions(run_dir)
setup()

# %%
recovery.header()

# %% [markdown]
# ## Around a loss

# %%
recovery.around(number, around_s)

# %% [markdown]
# ## Recoveries

# %%
recovery.recoveries()

# %% [markdown]
# ## Reductions by each control

# %%
reductions.table()

# %%
reductions.figure(loss)

# %% [markdown]
# ## Latency of fetches

# %%
fetches.table()

# %%
fetches.figure()

# %% [markdown]
# ## Guessed and counted

# %%
fetches.guesses()
