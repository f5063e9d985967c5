// What the server answers: the parts of the OpenAPI document that the page uses.

/** A number as JSON has it; those that JSON cannot have are strings. */
export type Real = number | "NaN" | "Infinity" | "-Infinity";

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

export interface Health {
  status: string;
  version: string;
}

export type SessionState = "idle" | "running" | "waiting" | "unloaded";

export interface Session {
  id: string;
  tenant: string;
  name: string | null;
  device: string;
  dtype: string;
  created_at: string;
  last_used_at: string;
  expires_at: string;
  durable: boolean;
  // Not in the lists of older servers.
  state?: SessionState;
  used_bytes?: number;
  programs?: number;
  worker?: string | null;
}

export interface SessionStatus extends Session {
  version: string;
  tensors: number;
  used_bytes: number;
  max_bytes: number;
  programs: number;
  instructions: number;
}

export type Source = "live" | "step";
export type Fold = "auto" | "module" | "line" | "op" | "none";

export interface Box {
  id: string;
  kind: "op" | "leaf" | "tensor" | "group";
  label: string;
  op: string | null;
  module: string | null;
  line: string | null;
  count: number;
  order: number;
  rank: number;
  shape: number[] | null;
  dtype: string | null;
  bytes: number;
  tensors: string[];
  grad_norm: Real | null;
  /** The number in a tensor of one element. Not in the answers of older servers. */
  number?: Real | null;
  expandable: boolean;
}

export interface BoxEdge {
  source: string;
  target: string;
  count: number;
}

export interface FoldedGraph {
  source: Source;
  sequence: number | null;
  revision: number;
  nodes: number;
  fold: Fold;
  boxes: Box[];
  edges: BoxEdge[];
  omitted: number;
}

export interface Statistics {
  shape: number[];
  dtype: string;
  size: number;
  min: Real | null;
  max: Real | null;
  mean: Real | null;
  norm: Real | null;
  nan: number;
  inf: number;
  preview: unknown;
  histogram: { edges: number[]; counts: number[] } | null;
  sampled: boolean;
}

export interface SavedTensor {
  name: string;
  shape: number[];
  dtype: string;
  bytes: number;
  freed: boolean;
}

export interface GraphNode {
  id: string;
  kind: "op" | "leaf" | "tensor";
  op: string | null;
  grad_fn: string | null;
  attrs: Record<string, unknown>;
  shape: number[] | null;
  dtype: string | null;
  module: string | null;
  line: string | null;
  tensors: string[];
  saved: SavedTensor[];
  derivative: Record<string, string> | null;
  doc: string;
  value: Statistics | null;
  grad: Statistics | null;
  inputs: string[];
  outputs: string[];
}

/** A node of a backward pass. */
export interface FlowNode {
  node: string;
  /** The box that has it in the folded graph. */
  box: string | null;
}

/** How large a gradient is; one of a single element is told as its number. */
export interface Amount {
  norm: Real;
  number?: Real | null;
}

export interface FlowTarget extends FlowNode, Amount {}

export interface FlowStep extends FlowNode {
  grad: Amount & { nan?: number; inf?: number };
  targets: FlowTarget[];
  /** Of a step that the page adds: a leaf has received its last addend. */
  isLeaf?: true;
}

export interface BackwardFlow {
  steps: FlowStep[];
  leaves: ({ id: string; box: string | null } & Amount)[];
  truncated: boolean;
}

export interface OpParam {
  name: string;
  kind: string;
  source: "input" | "attr";
  required: boolean;
  default: unknown;
  description?: string;
}

export interface OpEntry {
  key: string;
  name: string;
  kind: "op" | "verb" | "function";
  namespace: string;
  aliases: string[];
  signature: string;
  doc: string;
  outputs: string[];
  differentiable: boolean;
  inputs: OpParam[];
  attrs: OpParam[];
  internal: boolean;
}

export interface CompiledProgram {
  digest: string;
  instructions: number;
  runs: number;
  planned_runs: number;
  reason: string | null;
}

export interface ProfileTotals {
  name: string;
  category: string;
  input_shapes: string;
  count: number;
  total_ns: number;
  self_ns: number;
  bytes: number;
  self_bytes: number;
}

export interface ProfileRange {
  id: number;
  name: string;
  category: string;
  parent: number | null;
  thread: number;
  start_ns: number;
  end_ns: number;
  inner_ns: number;
  bytes: number;
}

export interface Profile {
  record_shapes: boolean;
  profile_memory: boolean;
  totals: ProfileTotals[];
  events: ProfileRange[];
  events_dropped: number;
}

export interface TenantUsage {
  tenant: string | null;
  sessions: number;
  sessions_created: number;
  requests: number;
  programs: number;
  instructions: number;
  seconds: number;
  received_bytes: number;
  sent_bytes: number;
  tensor_bytes: number;
}

export interface Usage extends Page<TenantUsage> {
  since: string;
}

export interface Readiness {
  status: string;
  sessions: number;
  max_sessions: number;
}

export interface WorkerEntry {
  name: string;
  url: string | null;
  state: string;
  sessions: number;
  max_sessions: number;
  device: string;
  used_bytes: number | null;
}

export interface Device {
  name: string;
  kind: string;
  backend: string;
  description: string;
  cores: number;
  total_bytes: number | null;
  used_bytes: number | null;
}

// Events of a session ------------------------------------------------------------------------------

export interface ProgramEvent {
  sequence: number | null;
  instructions: number;
  seconds: number;
  used_bytes: number;
  error: string | null;
  request_id: string | null;
  kind?: string;
  queued_s?: number;
  planned?: boolean;
  digest?: string | null;
  at?: string;
}

export interface ScalarsEvent {
  sequence: number | null;
  at: string;
  values: { key: string; label: string; value: Real }[];
}

export interface GraphEvent {
  revision: number;
  nodes: number;
}

export interface ServerEvent {
  name: string;
  data: unknown;
}
