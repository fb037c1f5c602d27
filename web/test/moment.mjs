// What was there at a moment: cgroups, and processes with all of their threads.
import assert from "node:assert/strict";

/** Cgroups as they were recorded, in the order that is asked for, and the processes of one of them. */
export async function checkCgroups(page, url, { checkLooks }) {
  await page.goto(`${url}#/processes`);
  await page.locator(".processes tbody tr").first().waitFor();
  const asked = page.waitForResponse((response) => response.url().includes("/api/v1/cgroups"));
  await page.getByRole("button", { name: "cgroups", exact: true }).click();
  const { cgroups } = await (await asked).json();
  const rows = page.locator(".cgroups tbody tr");
  await rows.first().waitFor();
  assert.equal(await rows.count(), cgroups.length);
  await page.locator(".cgroups").getByRole("button", { name: "tasks" }).click();
  await page.waitForFunction(() => location.hash.includes("sort=tasks"));
  const tasks = (await rows.evaluateAll((all) => all.map((row) => row.cells[11].textContent))).filter((text) => /^\d+$/.test(text)).map(Number);
  assert.ok(tasks.length > 0 && tasks.every((count, index) => index === 0 || count <= tasks[index - 1]), tasks.join());
  await checkLooks(page, "cgroups");
  const [group] = cgroups.filter((one) => one.processes > 0).sort((a, b) => a.processes - b.processes);
  await page.getByRole("searchbox").fill(group.cgroup);
  await page.locator(`.cgroups a[href$="${new URLSearchParams({ group: group.cgroup })}"]`).click();
  await page.waitForFunction((count) => document.querySelectorAll(".processes tbody tr").length === count, group.processes);
  await page.getByRole("button", { name: "All processes" }).click();
  await page.waitForFunction((count) => document.querySelectorAll(".processes tbody tr").length > count, group.processes);
}

/** What is drawn of a process is what the table says of it: of all of its threads. */
export async function checkThreads(page, url) {
  const ask = async (path) => page.context().request.get(`${url}api/v1/${path}`);
  const { since, until } = await (await ask("recording")).json();
  const middle = (Date.parse(since) + Date.parse(until)) / 2000;
  const { at, processes } = await (await ask(`processes?at=${middle.toFixed(3)}`)).json();
  const users = processes.filter((one) => !one.kthread && one.cpu !== null);
  const most = users.sort((a, b) => b.threads - a.threads)[0];
  const { tasks } = (await (await ask(`processes?at=${at}&pid=${most.pid}`)).json()).processes[0];
  assert.ok(tasks.length > 1, `${most.comm} has threads`);
  const moment = Date.parse(at) / 1000;
  for (const one of users.slice(0, 5)) {
    const query = new URLSearchParams({ metric: "task.cpu_time", row: one.row, process: "true", since: String(moment - 0.4), until: String(moment + 0.4), columns: "1" });
    // The median of the only column.
    const drawn = (await (await ask(`series?${query}`)).body()).readFloatLE(32 + 2 * 4);
    assert.ok(Math.abs(drawn - one.cpu) <= 1e-4 * Math.max(1, one.cpu), `${one.comm}: ${drawn} is drawn, ${one.cpu} in the table`);
  }
  const asked = () => page.waitForResponse((response) => response.url().includes("/api/v1/series?"));
  const isOfAll = async (response) => new URL((await response).url()).searchParams.get("process") === "true";
  let answer = asked();
  await page.goto(`${url}#/process/${encodeURIComponent(most.row)}?name=${encodeURIComponent(most.comm)}&t=${moment}`);
  assert.ok(await isOfAll(answer));
  await page.locator("#threads", { hasText: `${tasks.length} threads, which together are shown above` }).waitFor();
  answer = asked();
  await page.locator("#threads ~ .scroll tbody a").nth(1).click();
  assert.ok(!(await isOfAll(answer)), "one thread is one thread");
  await page.locator("#threads", { hasText: "one of which is shown above" }).waitFor();
  answer = asked();
  await page.getByRole("link", { name: /^All threads of/ }).click();
  assert.ok(await isOfAll(answer));
}
