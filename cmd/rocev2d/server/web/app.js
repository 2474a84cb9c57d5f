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
  const value = (name) => c.devices.reduce((n, d) => n + (name.startsWith('drop_') ? d.drops[name.slice(5)] || 0 : (d.link[name] || 0) + (d.qps[name] || 0) + (d.guard && d.guard[name] || 0)), 0);
  $('trouble').replaceChildren(...c.trouble.flatMap((t) => [
    el('dt', {}, el('code', {}, t.counter), ' ' + count(value(t.counter))),
    el('dd', {}, t.meaning + '. ', el('span', { class: 'dim' }, 'What to do: ' + t.remedy + '.')),
  ]));
  if (c.trouble.length === 0) $('trouble').replaceChildren(el('dd', { class: 'empty' }, 'none: all of them are zero'));
}

// Tables. The daemon makes them, with all text escaped; see table.html.

const tone = { RTS: 'ok', RTR: 'ok', ERR: 'bad', SQE: 'bad', SQD: 'warn', PORT_ACTIVE: 'ok', PORT_DOWN: 'bad' };
const tag = (text) => el('span', { class: 'tag ' + (tone[text] || '') }, text);
// loadList brings a list up to date. Its head and its pager stay as they are
// where nothing in them has changed, so that they keep the focus.
async function loadList(name) {
  const t = document.createElement('template'), asked = location.search;
  t.innerHTML = await (await call('/lists/' + name + asked)).text();
  if (asked !== location.search) return; // another order is on its way
  const fresh = t.content.firstElementChild, old = $(name + '-list');
  for (const time of fresh.querySelectorAll('time')) time.textContent = clock(time.dateTime);
  const same = (part) => fresh.querySelector(part)?.outerHTML === old.querySelector(part)?.outerHTML;
  if (same('thead') && same('.pager')) {
    old.querySelector('tbody').replaceWith(fresh.querySelector('tbody'));
  } else {
    const links = (e) => [...e.querySelectorAll('a')].map((a) => a.getAttribute('aria-label') || a.textContent);
    const focus = old.contains(document.activeElement) ? document.activeElement.getAttribute('aria-label') || document.activeElement.textContent : null;
    old.replaceWith(fresh);
    if (focus !== null) fresh.querySelectorAll('a')[links(fresh).indexOf(focus)]?.focus();
  }
  $(name + '-total').textContent = fresh.dataset.total;
}

// go shows a list as a link or a search wants it, and keeps that in the address
// of the page.
function go(name, address) {
  history.replaceState(null, '', address);
  attempt(() => loadList(name));
}

document.addEventListener('click', (e) => {
  const a = e.target.closest('a[data-list]');
  if (!a || e.button !== 0 || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
  e.preventDefault();
  // Of the other lists the link has what held when it was made.
  const to = new URL(location), link = new URL(a.href), own = (name) => name.startsWith(a.dataset.list + '.');
  for (const name of [...to.searchParams.keys()].filter(own)) to.searchParams.delete(name);
  for (const [name, value] of link.searchParams) if (own(name)) to.searchParams.set(name, value);
  to.hash = link.hash;
  go(a.dataset.list, to);
});

function search() {
  const to = new URL(location);
  for (const [name, value] of [['qps.find', $('qps-find').value.trim()], ['qps.state', $('qps-state').value]]) {
    if (value) to.searchParams.set(name, value); else to.searchParams.delete(name);
  }
  to.searchParams.delete('qps.offset');
  go('qps', to);
}

const lists = Object.fromEntries(['qps', 'regions', 'connections', 'leases', 'peers'].map((name) => [name, () => loadList(name)]));

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

const loaders = { devices: [loadDevices], qps: [lists.qps], regions: [lists.regions], connections: [lists.connections], leases: [lists.leases], peers: [lists.peers, loadTargets], errors: [loadErrors], capture: [loadCapture] };
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
$('qps-find').oninput = () => { clearTimeout(typing); typing = setTimeout(search, 200); };
$('qps-state').onchange = search;
$('qps-form').onsubmit = (e) => { e.preventDefault(); search(); };
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
attempt(async () => { await Promise.all([loadStatus(), loadDevices(), lists.qps()]); });
turn();
