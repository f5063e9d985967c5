// The server: whether it is well, what it may hold, who uses it, and the workers of a cluster.

import { Problem, getAll, getJson } from "../api/client";
import type { Device, Readiness, TenantUsage, Usage, WorkerEntry } from "../api/types";
import { formatAge, formatBytes, formatCount, formatSeconds } from "../format";
import { usePolled } from "../state/polling";
import { serverVersion } from "../state/server";
import { ErrorNote, Metric } from "../widgets/common";

const PERIOD_MS = 3000;

interface Everything {
  ready: Readiness | Problem;
  usage: Usage;
  workers: WorkerEntry[] | null;
  devices: Device[];
}

/** A part that a server may not have, or may refuse: null then, and the rest is shown. */
async function optional<T>(part: Promise<T>): Promise<T | null> {
  try {
    return await part;
  } catch (error) {
    if (error instanceof Problem) return null;
    throw error;
  }
}

async function readEverything(signal: AbortSignal): Promise<Everything> {
  const ready = getJson<Readiness>("readyz", signal).catch((error: unknown) => {
    if (error instanceof Problem) return error;
    throw error;
  });
  const workers = optional(getAll<WorkerEntry>("v1/workers", signal));
  const [isReady, usage, found, devices] = await Promise.all([
    ready,
    getJson<Usage>("v1/usage?limit=1000", signal),
    workers,
    optional(getAll<Device>("v1/devices", signal)),
  ]);
  return { ready: isReady, usage, workers: found, devices: devices ?? [] };
}

export function ServerView() {
  const { data, error } = usePolled(readEverything, PERIOD_MS);
  return (
    <section class="page" aria-labelledby="server-title">
      <h1 id="server-title">Server</h1>
      {error !== null && data === null && <ErrorNote error={error} title="The server's state cannot be read" />}
      {data !== null && (
        <>
          <HealthCard data={data} />
          {data.workers !== null && <WorkersCard workers={data.workers} />}
          <UsageCard items={data.usage.items} />
          {data.devices.length > 0 && <DevicesCard devices={data.devices} />}
        </>
      )}
    </section>
  );
}

function HealthCard({ data: { ready, usage } }: { data: Everything }) {
  const isReady = !(ready instanceof Problem);
  const age = (Date.now() - Date.parse(usage.since)) / 1000;
  return (
    <article class="card">
      <h2>Health</h2>
      <p class="health">
        <span class={`dot ${isReady ? "good" : "bad"}`} aria-hidden="true" />
        {isReady ? "The server takes work." : ready.message}
      </p>
      <dl class="metrics">
        <Metric label="version" value={serverVersion.value ?? "–"} />
        <Metric label="running for" value={formatAge(age)} title={new Date(usage.since).toLocaleString("en-GB")} />
        {isReady && <Metric label="sessions" value={`${formatCount(ready.sessions)} of ${formatCount(ready.max_sessions)}`} />}
      </dl>
      {isReady && <Meter value={ready.sessions} max={ready.max_sessions} label="Sessions, of the most that the server holds" />}
    </article>
  );
}

function Meter({ value, max, label }: { value: number; max: number; label: string }) {
  const share = max > 0 ? Math.min(1, value / max) : 0;
  return (
    <div class="meter" role="meter" aria-label={label} aria-valuenow={value} aria-valuemin={0} aria-valuemax={max}>
      <span class={share > 0.9 ? "full" : ""} style={{ width: `${100 * share}%` }} />
    </div>
  );
}

function WorkersCard({ workers }: { workers: WorkerEntry[] }) {
  return (
    <article class="card">
      <h2>Workers</h2>
      <div class="scroll-x">
        <table class="plain">
          <thead>
            <tr>
              <th>Name</th>
              <th>State</th>
              <th>Device</th>
              <th class="numeric">Sessions</th>
              <th class="numeric">Memory</th>
              <th>Address</th>
            </tr>
          </thead>
          <tbody>
            {workers.map((worker) => (
              <tr key={worker.name}>
                <td>{worker.name}</td>
                <td>{worker.state}</td>
                <td>{worker.device}</td>
                <td class="numeric">
                  {formatCount(worker.sessions)} of {formatCount(worker.max_sessions)}
                </td>
                <td class="numeric">{formatBytes(worker.used_bytes)}</td>
                <td>{worker.url === null ? "this server" : <code>{worker.url}</code>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </article>
  );
}

function UsageCard({ items }: { items: TenantUsage[] }) {
  return (
    <article class="card">
      <h2>Usage by tenant</h2>
      <div class="scroll-x">
        <table class="plain">
          <thead>
            <tr>
              <th>Tenant</th>
              <th class="numeric">Sessions</th>
              <th class="numeric">Created</th>
              <th class="numeric">Requests</th>
              <th class="numeric">Programs</th>
              <th class="numeric">Instructions</th>
              <th class="numeric">Computing</th>
              <th class="numeric">Received</th>
              <th class="numeric">Sent</th>
              <th class="numeric">Tensors</th>
            </tr>
          </thead>
          <tbody>
            {items.map((each) => (
              <tr key={each.tenant ?? ""}>
                <td>{each.tenant ?? "all others"}</td>
                <td class="numeric">{formatCount(each.sessions)}</td>
                <td class="numeric">{formatCount(each.sessions_created)}</td>
                <td class="numeric">{formatCount(each.requests)}</td>
                <td class="numeric">{formatCount(each.programs)}</td>
                <td class="numeric">{formatCount(each.instructions)}</td>
                <td class="numeric">{formatSeconds(each.seconds)}</td>
                <td class="numeric">{formatBytes(each.received_bytes)}</td>
                <td class="numeric">{formatBytes(each.sent_bytes)}</td>
                <td class="numeric">{formatBytes(each.tensor_bytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </article>
  );
}

function DevicesCard({ devices }: { devices: Device[] }) {
  return (
    <article class="card">
      <h2>Devices</h2>
      <ul class="devices">
        {devices.map((device) => (
          <li key={device.name}>
            <strong>{device.name}</strong> <span class="quiet">{[device.description, device.backend].filter(Boolean).join(" · ")}</span>
            {device.total_bytes !== null && (
              <>
                <span class="quiet">
                  {" "}
                  {formatBytes(device.used_bytes)} of {formatBytes(device.total_bytes)}
                </span>
                <Meter value={device.used_bytes ?? 0} max={device.total_bytes} label={`Memory of ${device.name}`} />
              </>
            )}
            {device.total_bytes === null && <span class="quiet"> · {formatCount(device.cores)} cores</span>}
          </li>
        ))}
      </ul>
    </article>
  );
}
