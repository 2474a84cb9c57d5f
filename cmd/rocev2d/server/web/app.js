// The page of rocev2d. Everything that is shown is set as text, never as HTML:
// much of it comes from peers.

const $ = (id) => document.getElementById(id);

// el makes an element: el('td', {class: 'n'}, 'text', child …).
function el(name, attrs, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attrs || {})) if (v !== undefined) e.setAttribute(k, v);
  e.append(...children.filter((c) => c !== undefined && c !== null && c !== ''));
  return e;
}

// Talking to the daemon.

const tokenKey = 'rocev2d-token';
let asking = null;

async function call(path, options = {}) {
  for (;;) {
    const headers = { ...options.headers };
    const token = sessionStorage.getItem(tokenKey);
    if (token) headers.Authorization = 'Bearer ' + token;
    const r = await fetch(path, { ...options, headers, signal: AbortSignal.timeout(15000) });
    if (r.status === 401) { await askToken(); continue; }
    if (!r.ok) {
      let why = r.status + ' ' + r.statusText;
      try { why = (await r.json()).error || why; } catch { /* the status says it */ }
      throw new Error(why);
    }
    return r;
  }
}

const get = async (name) => (await call('/api/v1/' + name)).json();
const post = async (name, body) => (await call('/api/v1/' + name, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body || {}) })).json();

function askToken() {
  asking ||= new Promise((done) => {
    $('token').value = '';
    $('login').showModal();
    $('login').addEventListener('close', () => {
      sessionStorage.setItem(tokenKey, $('token').value);
      asking = null;
      done();
    }, { once: true });
  });
  return asking;
}

// Numbers as people read them.

const hex = (n) => '0x' + n.toString(16).padStart(6, '0');
function scaled(n, units, base) {
  let i = 0;
  while (n >= base && i < units.length - 1) { n /= base; i++; }
  return (n >= 100 || n === Math.trunc(n) ? n.toFixed(0) : n.toPrecision(3)) + ' ' + units[i];
}
const bytes = (n) => scaled(n, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'], 1024);
const count = (n) => scaled(n, ['', 'k', 'M', 'G', 'T'], 1000).trim();
const micros = (us) => scaled(us, ['µs', 'ms', 's'], 1000);
const clock = (t) => new Date(t).toLocaleTimeString();
function since(t) {
  const s = Math.max(0, (Date.now() - new Date(t)) / 1000);
  if (s < 60) return s.toFixed(0) + ' s';
  if (s < 3600) return (s / 60).toFixed(0) + ' min';
  if (s < 86400) return (s / 3600).toFixed(1) + ' h';
  return (s / 86400).toFixed(1) + ' d';
}

// Plots.

const points = 120; // one a second
const plots = [
  { title: 'Throughput', unit: (v) => bytes(v) + '/s', lines: ['sent', 'received'] },
  { title: 'Packets', unit: (v) => count(v) + '/s', lines: ['sent', 'received'] },
  { title: 'Requests', unit: (v) => count(v) + '/s', lines: ['sent', 'received'] },
  { title: 'Round trip time', unit: micros, lines: ['median', '99th percentile'] },
  { title: 'In flight', unit: bytes, lines: ['bytes'] },
  { title: 'Trouble', unit: (v) => count(v) + '/s', lines: ['packets sent again', 'packets dropped'] },
];

const svgName = 'http://www.w3.org/2000/svg';
function svg(name, attrs) {
  const e = document.createElementNS(svgName, name);
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  return e;
}

function makePlots() {
  for (const p of plots) {
    p.data = p.lines.map(() => []);
    p.top = el('span', { class: 'dim' });
    p.values = p.lines.map((name, i) => el('span', { class: 'k' + i }, name));
    p.svg = svg('svg', { viewBox: `0 0 ${points - 1} 100`, preserveAspectRatio: 'none', role: 'img', 'aria-label': p.title });
    for (const y of [1, 50, 99]) p.svg.append(svg('line', { x1: 0, x2: points - 1, y1: y, y2: y, class: 'g' }));
    p.paths = p.lines.map((_, i) => p.svg.appendChild(svg('polyline', { class: 'l' + i, points: '' })));
    $('plots').append(el('div', { class: 'plot' }, el('h3', {}, p.title, p.top), el('div', { class: 'legend' }, ...p.values), p.svg));
  }
}

function draw(p, values) {
  p.data.forEach((d, i) => { d.push(values[i]); if (d.length > points) d.shift(); });
  const most = Math.max(...p.data.flat());
  const scale = most > 0 ? most * 1.08 : 1;
  p.top.textContent = most > 0 ? 'max ' + p.unit(most) : '';
  const said = [];
  p.data.forEach((d, i) => {
    const x0 = points - d.length;
    p.paths[i].setAttribute('points', d.map((v, k) => `${x0 + k},${(99 - 98 * v / scale).toFixed(1)}`).join(' '));
    said.push(p.lines[i] + ' ' + p.unit(d.at(-1)));
    p.values[i].textContent = said[i];
  });
  p.svg.setAttribute('aria-label', p.title + ': ' + said.join(', '));
}

let last = null;
function rates(c) {
  const only = $('rates-device').value;
  const sum = { time: c.time_ms, tx: 0, rx: 0, txp: 0, rxp: 0, posted: 0, recv: 0, again: 0, drops: 0, flight: 0, median: 0, p99: 0, only };
  for (const d of c.devices) {
    if (only && d.address !== only) continue;
    sum.tx += d.link.tx_bytes; sum.rx += d.link.rx_bytes;
    sum.txp += d.link.tx_packets; sum.rxp += d.link.rx_packets;
    sum.posted += d.qps.send_done; sum.recv += d.qps.recv_done;
    sum.again += d.qps.retransmits; sum.flight += d.in_flight;
    for (const n of Object.values(d.drops)) sum.drops += n;
    sum.median = Math.max(sum.median, d.rtt.median_us); sum.p99 = Math.max(sum.p99, d.rtt.p99_us);
  }
  const was = last;
  last = sum;
  if (!was || was.only !== only || sum.time <= was.time) return;
  const per = (k) => Math.max(0, (sum[k] - was[k]) * 1000 / (sum.time - was.time));
  [[per('tx'), per('rx')], [per('txp'), per('rxp')], [per('posted'), per('recv')], [sum.median, sum.p99], [sum.flight], [per('again'), per('drops')]]
    .forEach((v, i) => draw(plots[i], v));
}

function trouble(c) {
  const value = (name) => c.devices.reduce((n, d) => n + (name.startsWith('drop_') ? d.drops[name.slice(5)] || 0 : (d.link[name] || 0) + (d.qps[name] || 0)), 0);
  $('trouble').replaceChildren(...c.trouble.flatMap((t) => [
    el('dt', {}, el('code', {}, t.counter), ' ' + count(value(t.counter))),
    el('dd', {}, t.meaning + '. ', el('span', { class: 'dim' }, 'What to do: ' + t.remedy + '.')),
  ]));
  if (c.trouble.length === 0) $('trouble').replaceChildren(el('dd', { class: 'empty' }, 'none: all of them are zero'));
}

// Tables.

const tone = { RTS: 'ok', RTR: 'ok', ERR: 'bad', SQE: 'bad', SQD: 'warn', PORT_ACTIVE: 'ok', PORT_DOWN: 'bad' };
const tag = (text) => el('span', { class: 'tag ' + (tone[text] || '') }, text);
const cell = (v, cls) => el('td', { class: cls }, v === undefined || v === null ? '' : v instanceof Node ? v : String(v));

function fill(id, rows, columns, none) {
  $(id).replaceChildren(...rows);
  if (rows.length === 0) $(id).replaceChildren(el('tr', {}, el('td', { colspan: columns, class: 'empty' }, none)));
}

// pages makes the buttons of a list, and returns where it is.
function pages(name, size, load) {
  const at = { offset: 0, size, total: 0 };
  const back = el('button', { type: 'button', 'aria-label': 'previous page' }, '‹');
  const next = el('button', { type: 'button', 'aria-label': 'next page' }, '›');
  const where = el('span', { 'aria-live': 'polite' });
  back.onclick = () => { at.offset = Math.max(0, at.offset - size); load(); };
  next.onclick = () => { at.offset += size; load(); };
  $(name + '-pager').append(back, where, next);
  at.show = (p) => {
    at.total = p.total;
    if (at.offset > 0 && at.offset >= p.total) { at.offset = Math.max(0, Math.floor((p.total - 1) / size) * size); load(); return; }
    $(name + '-total').textContent = p.total;
    where.textContent = p.total ? `${p.offset + 1}–${p.offset + p.items.length} of ${p.total}` : '';
    back.disabled = at.offset === 0;
    next.disabled = at.offset + size >= p.total;
  };
  return at;
}

async function loadQPs() {
  const q = new URLSearchParams({ offset: qpPages.offset, limit: qpPages.size, state: $('qps-state').value, find: $('qps-find').value.trim() });
  const p = await get('qps?' + q);
  qpPages.show(p);
  fill('qps-rows', p.items.map((q) => el('tr', {},
    cell(el('code', {}, hex(q.qpn))), cell(q.type), cell(tag(q.state)), cell(q.peer ? `${q.peer} ${q.peer_qpn ? hex(q.peer_qpn) : ''}` : ''),
    cell(hex(q.send_psn)), cell(hex(q.oldest_psn)), cell(hex(q.receive_psn)),
    cell(q.in_flight ? bytes(q.in_flight) : '', 'n'), cell(q.rtt_us ? micros(q.rtt_us) : '', 'n'),
    cell(bytes(q.tx_bytes), 'n'), cell(bytes(q.rx_bytes), 'n'), cell(q.retransmits || '', 'n'), cell(q.drops || '', 'n'))), 13, 'no queue pairs');
}

async function loadRegions() {
  const p = await get('regions?limit=1000');
  $('regions-total').textContent = p.total;
  fill('regions-rows', p.items.map((r) => el('tr', {},
    cell(el('code', {}, r.name)), cell(r.device), cell(bytes(r.size), 'n'), cell(r.file || 'anonymous'), cell(r.access), cell(r.allow.join(', '), 'wide'),
    cell(r.opened, 'n'), cell(r.refused || '', 'n'))), 8, 'no regions: add a [[region]] to the configuration');
}

async function loadConnections() {
  const p = await get(`connections?offset=${connPages.offset}&limit=${connPages.size}`);
  connPages.show(p);
  fill('connections-rows', p.items.map((c) => el('tr', {},
    cell(c.peer), cell(c.target), cell(c.device), cell(c.qpn ? el('code', {}, hex(c.qpn)) : ''), cell(since(c.begin)))), 5, 'nobody is connected');
}

let leasesBefore = { at: 0, bytes: new Map() };

async function loadLeases() {
  const p = await get(`leases?offset=${leasePages.offset}&limit=${leasePages.size}`);
  const now = { at: performance.now(), bytes: new Map() };
  const rate = (key, n) => {
    now.bytes.set(key, n);
    const was = leasesBefore.bytes.get(key);
    return was === undefined || n < was ? '' : `, ${count(8000 * (n - was) / (now.at - leasesBefore.at))}b/s`;
  };
  const shm = (n) => n ? `, ${bytes(n)} of it through shared memory` : '';
  leasePages.show(p);
  fill('leases-rows', p.items.map((l) => {
    const key = `${l.device} ${l.slot} ${l.since}`;
    return el('tr', {}, cell(l.process || '?'), cell(l.own ? `${l.command} (this daemon)` : l.command), cell(l.user), cell(l.device), cell(since(l.since)),
      cell(`${count(l.queue_pairs)} of ${count(l.queue_pairs_made)}`, 'n'), cell(count(l.connections), 'n'),
      cell(bytes(l.tx_bytes) + rate(key + ' tx', l.tx_bytes) + shm(l.tx_shm_bytes), 'n'), cell(bytes(l.rx_bytes) + rate(key + ' rx', l.rx_bytes) + shm(l.rx_shm_bytes), 'n'),
      cell([...new Set([...l.reached.map((p) => p.native ? `${p.addr} (rocev2)` : p.addr), ...l.peers.filter((a) => !l.reached.some((p) => p.addr === a))])].join(', '), 'wide'));
  }), 10, 'no process shares a port');
  leasesBefore = now;
}

async function loadPeers() {
  const p = await get(`peers?offset=${peerPages.offset}&limit=${peerPages.size}`);
  peerPages.show(p);
  fill('peers-rows', p.items.map((v) => el('tr', {},
    cell(clock(v.end)), cell(v.peer), cell(v.count > 1 ? `${v.target}, ${v.count} connections` : v.target), cell(v.device), cell(micros(1000 * Math.max(0, new Date(v.end) - new Date(v.begin))), 'n'),
    v.error ? el('td', { class: 'wide' }, el('span', { class: 'tag bad' }, 'failed'), ' ' + v.error) : cell(v.result || 'done', 'wide'))), 6, 'nobody was here yet');
}

async function loadTargets() {
  const p = await get('targets');
  $('targets').replaceChildren(...p.items.map((t) => el('li', { title: t.error || t.state }, `${t.tools.join(', ')} → ${t.device} ${t.space} ${t.port} `, t.state === 'serving' ? '' : tag(t.state))));
}

async function loadErrors() {
  const p = await get('errors?limit=50');
  $('errors-total').textContent = p.total || '';
  $('errors-rows').replaceChildren(...p.items.map((e) => el('li', {},
    el('div', { class: 'dim' }, `${clock(e.last)}${e.count > 1 ? ` · ${e.count} times since ${clock(e.first)}` : ''} · ${e.source}${e.device ? ' · ' + e.device : ''}${e.peer ? ' · peer ' + e.peer : ''}`),
    el('div', {}, e.what),
    e.meaning ? el('div', { class: 'dim' }, `It means: ${e.meaning}.${e.remedy ? ` What to do: ${e.remedy}.` : ''}`) : '')));
  if (p.items.length === 0) $('errors-rows').replaceChildren(el('li', { class: 'empty' }, 'none'));
}

async function loadDevices() {
  const p = await get('devices');
  $('cards').replaceChildren(...p.items.map((d) => {
    const dl = el('dl');
    for (const [k, v] of [
      ['Interface', d.interface + (d.speed_mbps ? `, ${count(d.speed_mbps * 1e6)}b/s` : '')], ['Path MTU', `${d.active_mtu} of ${d.link_mtu}`], ['GID', d.gid],
      ['Queue pairs', Object.entries(d.states).map(([s, n]) => `${n} ${s}`).join(', ') || '0'], ['Memory regions', String(d.mrs)],
      ['Buffers', `${bytes(d.receive_buffer)} in, ${bytes(d.send_buffer)} out`], ['Offloads', d.offloads.join(', ') || 'none'],
      ['Shared memory', d.shared_memory ? (d.shared_memory_peers || ['on, with nobody at the moment']).join(', ') : undefined],
      ['Regions at port', d.regions_port ? String(d.regions_port) : undefined], ['Down', d.down_reason],
    ]) if (v) dl.append(el('dt', {}, k), el('dd', {}, v));
    return el('div', { class: 'card' }, el('h3', {}, d.address, tag(d.state)), dl);
  }));
  for (const id of ['rates-device', 'capture-device']) {
    if ($(id).options.length === 1) for (const d of p.items) $(id).append(el('option', { value: d.address }, d.address));
  }
}

async function loadCapture() {
  const c = await get('capture');
  $('capture-start').disabled = c.running;
  $('capture-stop').disabled = !c.running;
  $('capture-get').disabled = c.kept === 0;
  $('capture-state').textContent = !c.size ? 'Nothing was recorded yet.'
    : `${c.running ? 'Recording' : 'Recorded'} ${c.filter ? `“${c.filter}”` : 'all packets'}: ${count(c.matched)} of ${count(c.seen)} packets, the latest ${count(c.kept)} are kept in ${bytes(c.bytes)} of ${bytes(c.size)}.`;
}

async function loadStatus() {
  const s = await get('status');
  const down = s.devices.filter((d) => d.state !== 'PORT_ACTIVE').length;
  $('host').textContent = `${s.host} · up ${since(s.started)} · ${count(s.clients)} clients`;
  $('version').textContent = s.version;
  document.title = 'rocev2d ' + s.host;
  state(s.draining ? 'draining' : down ? 'port down' : 'serving', s.draining ? 'warn' : down ? 'bad' : 'ok');
}

function state(text, cls) {
  if ($('state').textContent !== text) $('state').textContent = text;
  $('state').className = 'pill ' + cls;
}

// What is in view is loaded again and again, the rest is left alone.

const loaders = { devices: [loadDevices], qps: [loadQPs], regions: [loadRegions], connections: [loadConnections], leases: [loadLeases], peers: [loadPeers, loadTargets], errors: [loadErrors], capture: [loadCapture] };
const inView = new Set();
let paused = false, beat = 0;

async function attempt(f) {
  try {
    await f();
    $('banner').hidden = true;
  } catch (e) {
    state('no answer', 'bad');
    $('banner').textContent = 'The daemon does not answer as expected: ' + e.message;
    $('banner').hidden = false;
  }
}

async function turn() {
  if (!document.hidden && !paused) {
    await attempt(async () => {
      const c = await get('counters');
      rates(c);
      if (inView.has('errors')) trouble(c);
      if (beat % 2 === 0) {
        await loadStatus();
        for (const id of inView) for (const f of loaders[id] || []) await f();
      }
    });
    beat++;
  }
  setTimeout(turn, 1000);
}

let typing = 0;
const soon = (f) => { clearTimeout(typing); typing = setTimeout(() => attempt(f), 200); };
const qpPages = pages('qps', 50, () => attempt(loadQPs));
const connPages = pages('connections', 25, () => attempt(loadConnections));
const leasePages = pages('leases', 25, () => attempt(loadLeases));
const peerPages = pages('peers', 25, () => attempt(loadPeers));
$('qps-find').oninput = () => { qpPages.offset = 0; soon(loadQPs); };
$('qps-state').onchange = () => { qpPages.offset = 0; attempt(loadQPs); };
$('rates-device').onchange = () => plots.forEach((p) => p.data.forEach((d) => { d.length = 0; }));
$('pause').onclick = () => {
  paused = !paused;
  last = null;
  $('pause').setAttribute('aria-pressed', paused);
  $('pause').textContent = paused ? 'Continue' : 'Pause';
};
$('capture-form').onsubmit = (e) => {
  e.preventDefault();
  attempt(async () => { await post('capture/start', { device: $('capture-device').value, filter: $('capture-filter').value.trim() }); await loadCapture(); });
};
$('capture-stop').onclick = () => attempt(async () => { await post('capture/stop'); await loadCapture(); });
$('capture-get').onclick = () => attempt(async () => {
  const blob = await (await call('/api/v1/capture/download')).blob();
  const url = URL.createObjectURL(blob);
  el('a', { href: url, download: 'rocev2.pcapng' }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
});

makePlots();
const watch = new IntersectionObserver((list) => {
  for (const e of list) {
    const fresh = e.isIntersecting && !inView.has(e.target.id);
    e.isIntersecting ? inView.add(e.target.id) : inView.delete(e.target.id);
    if (fresh && beat > 0) for (const f of loaders[e.target.id] || []) attempt(f);
  }
}, { rootMargin: '200px' });
document.querySelectorAll('main > section').forEach((s) => watch.observe(s));
attempt(async () => { await Promise.all([loadStatus(), loadDevices(), loadQPs()]); });
turn();
