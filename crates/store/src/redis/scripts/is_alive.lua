-- Returns 1 if a node is on the list of nodes and has sent a heartbeat recently.
-- KEYS: nodes, pulse. ARGV: node, how long a node may be without a heartbeat.
local beat = redis.call('ZSCORE', KEYS[1], ARGV[1])
-- A node that has left has a negative time.
if not beat or tonumber(beat) < 0 then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local pulse = redis.call('HMGET', KEYS[2], 'last', 'since')
local last, since = tonumber(pulse[1] or '0'), tonumber(pulse[2] or '0')
-- As in dead_nodes.lua: while no node sends heartbeats, no node counts as dead.
if now - last > ARGV[2] / 2 then return 1 end
if now - math.max(tonumber(beat), since) > tonumber(ARGV[2]) then return 0 end
return 1
