-- Gives those of the nodes that have been silent for too long, and those that have left something: they stand there with a time
-- before all times.
-- KEYS: nodes, the pulse of all. ARGV: how long a node may be silent.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local since = tonumber(redis.call('HGET', KEYS[2], 'since') or '0')
if now - since <= tonumber(ARGV[1]) then return redis.call('ZRANGE', KEYS[1], '-inf', '(0', 'BYSCORE') end
return redis.call('ZRANGE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - ARGV[1]), 'BYSCORE')
