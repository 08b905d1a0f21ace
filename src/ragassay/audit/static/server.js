// Talks to the server. What the server refuses and what does not reach it are told apart,
// because only the latter is worth trying again.

export class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

const PATIENCE_MS = 10000;

/** GET without a body, else POST; gives the parsed reply. */
export async function ask(path, body) {
  const request = { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store" };
  if (body !== undefined) {
    request.method = "POST";
    request.headers = { "Content-Type": "application/json" };
    request.body = JSON.stringify(body);
  }
  const reply = await fetch(path, request);
  const value = await reply.json();
  if (!reply.ok) throw new Refused(reply.status, value.error ?? `status ${reply.status}`);
  return value;
}

/** Whether the same request may succeed later: no reply, a failing disk, or a stale link. */
export function passing(error) {
  return !(error instanceof Refused) || error.status >= 500 || error.status === 403;
}
