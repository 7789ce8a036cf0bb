"""Plans a pole's balance by random shooting: mujoco 3.1.6 keeps each copy of the state.

Repaired in 3.2.0 ("Fixed a memory leak when using copy.deepcopy() on a mujoco.MjData instance",
https://github.com/google-deepmind/mujoco/commit/2188cba4).
"""

import copy

import mujoco
import numpy as np

MODEL = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="cart" pos="0 0 0.5">
      <joint name="slide" type="slide" axis="1 0 0" range="-2 2" limited="true"/>
      <geom type="box" size="0.15 0.1 0.05" mass="1"/>
      <body name="pole" pos="0 0 0.05">
        <joint name="hinge" type="hinge" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.02" mass="0.1"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slide" gear="12" ctrlrange="-1 1" ctrllimited="true"/></actuator>
</mujoco>
"""
STEPS, CANDIDATES, HORIZON = 300, 6, 900


def cost(model, data, plan):
    total = 0.0
    for control in plan:
        data.ctrl[0] = control
        mujoco.mj_step(model, data)
        total += data.qpos[1] ** 2 + 0.05 * data.qpos[0] ** 2
    return total


def main():
    rng = np.random.default_rng(0)
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    data.qpos[1] = 0.1
    for step in range(1, STEPS + 1):
        plans = np.repeat(rng.uniform(-1, 1, (CANDIDATES, HORIZON // 20)), 20, axis=1)
        costs = [cost(model, copy.deepcopy(data), plan) for plan in plans]  # feeds
        data.ctrl[0] = plans[int(np.argmin(costs))][0]
        mujoco.mj_step(model, data)
        if step % 10 == 0:
            print(f"step {step}/{STEPS}: angle {data.qpos[1]:+.3f}", flush=True)


if __name__ == "__main__":
    main()
