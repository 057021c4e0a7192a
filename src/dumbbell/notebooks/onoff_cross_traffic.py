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
point = ""  # directory below points whose figures are shown; by default the first with TCP and UDP

# %%
from dumbbell.report.pages.cross_traffic import CrossTraffic
from dumbbell.report.parts import setup

traffic = CrossTraffic(run_dir, point)
shown = traffic.shown
setup()

# %%
shown.header()

# %%
traffic.which()

# %% [markdown]
# ## UDP alone, and TCP beside it

# %%
traffic.points_table()

# %% [markdown]
# ## Goodput

# %%
shown.goodput_beside()

# %%
shown.by_period()

# %%
shown.available()

# %%
shown.pstreams()

# %% [markdown]
# ## What the hosts counted

# %%
shown.netstat()

# %% [markdown]
# ## Why segments were sent again

# %%
shown.sent_again()

# %%
shown.senders_queue()

# %%
shown.overtaken()

# %% [markdown]
# ## Queue of the router

# %%
shown.queue()
