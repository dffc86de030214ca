-- Gives 1 if a node is on the list and has not been silent for too long.
-- KEYS: nodes, the pulse of all. ARGV: node, how long a node may be silent.
local beat = redis.call('ZSCORE', KEYS[1], ARGV[1])
-- One that has left stands there with a time before all times.
if not beat or tonumber(beat) < 0 then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local pulse = redis.call('HMGET', KEYS[2], 'last', 'since')
local last, since = tonumber(pulse[1] or '0'), tonumber(pulse[2] or '0')
-- As in dead.lua: nobody is dead of a silence of all.
if now - last > ARGV[2] / 2 then return 1 end
if now - math.max(tonumber(beat), since) > tonumber(ARGV[2]) then return 0 end
return 1
