-- Returns the nodes that have sent no heartbeat for too long, and those that have left and still
-- hold something. A node that has left has a negative time.
-- KEYS: nodes, pulse. ARGV: how long a node may be without a heartbeat.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local pulse = redis.call('HMGET', KEYS[2], 'last', 'since')
local last, since = tonumber(pulse[1] or '0'), tonumber(pulse[2] or '0')
-- While no node sends heartbeats, the server was down or its clock was changed: the node that asks
-- has not sent one either. Once a node sends heartbeats again, every node gets the full time. Until
-- then only nodes that have left are dead.
if now - last > ARGV[1] / 2 or now - since <= tonumber(ARGV[1]) then
  return redis.call('ZRANGE', KEYS[1], '-inf', '(0', 'BYSCORE')
end
return redis.call('ZRANGE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - ARGV[1]), 'BYSCORE')
