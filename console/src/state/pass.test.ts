import { describe, expect, it } from "vitest";
import type { FlowStep } from "../api/types";
import { receivedBy, shownAfter, stepsOf } from "./pass";

const to = (node: string, norm: number, box: string | null = null) => ({ node, box, norm, number: norm });
const at = (node: string, norm: number, ...targets: FlowStep["targets"]): FlowStep => ({ node, box: null, grad: { norm, number: norm }, targets });
const leaf = (id: string, norm: number, box: string | null = null) => ({ id, box, norm, number: norm });

// g = u * u + u + b at u = 3.
const STEPS = [at("n3", 1, to("n2", 1), to("t:b", 1)), at("n2", 1, to("n1", 1), to("t:u", 1)), at("n1", 1, to("t:u", 3), to("t:u", 3))];
const PASS = { steps: STEPS, leaves: [leaf("t:b", 1), leaf("t:u", 7)], truncated: false };
const own = ({ node }: { node: string }) => node;

describe("a pass", () => {
  const steps = stepsOf(PASS);
  it("tells of each leaf when its last addend has arrived", () => {
    expect(steps.map(({ node, isLeaf }) => (isLeaf ? `${node} is done` : node))).toEqual(["n3", "t:b is done", "n2", "n1", "t:u is done"]);
    expect(steps.at(-1)?.grad.number).toBe(7);
  });

  it("is left as it is without leaves", () => expect(stepsOf({ ...PASS, leaves: [] })).toEqual(STEPS));

  it("adds what a node received", () => {
    expect(receivedBy("t:u", steps.slice(0, 4))).toEqual({ parts: [to("t:u", 1), to("t:u", 3), to("t:u", 3)], sum: null });
    expect(receivedBy("t:u", steps)?.sum?.number).toBe(7);
    expect(receivedBy("t:u", [])).toBeNull();
  });
});

describe("what boxes show", () => {
  const steps = stepsOf(PASS);
  it("is an addend, and then the sum", () => {
    expect(shownAfter(steps.slice(0, 4), own).get("t:u")).toEqual({ norm: 3, sum: null });
    expect(shownAfter(steps, own).get("t:u")).toMatchObject({ norm: 7, sum: { number: 7 } });
    expect(shownAfter(steps, own).get("n1")).toEqual({ norm: 1, sum: null });
  });

  it("is the sum where addends cancel", () => {
    const cancelled = [at("n2", 1, to("n1", 5), to("n1", 5)), at("n1", 0)];
    expect(shownAfter(cancelled, own).get("n1")?.norm).toBe(0);
  });

  it("is the largest of a group, NaN before all", () => {
    expect(shownAfter(steps, () => "g").get("g")?.norm).toBe(7);
    expect(shownAfter([at("n2", 1, to("n1", NaN)), at("n3", 2)], () => "g").get("g")?.norm).toBeNaN();
    expect(shownAfter(steps, () => null).size).toBe(0);
  });
});
